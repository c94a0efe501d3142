"""A checkpoint that is not the one that was verified is refused; the one that was never is."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.stored_fingerprint import read_fingerprint
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import VARIANTS, make_model
from fakes.toy_executor import toy_spec
from paredown.compress.compress import compress
from paredown.errors import CheckpointError
from paredown.evaluate.verify import fingerprint as fingerprint_module
from paredown.evaluate.verify.fingerprint import Fingerprint, make_fingerprint
from paredown.evaluate.verify.golden import (
    GOLDEN_KV,
    NUM_TOKENS,
    golden_tokens,
    hash_output,
    run_golden,
)
from paredown.evaluate.verify.verification_file import NAME, write_verification
from paredown.executors.cache_config import CacheConfig
from paredown.executors.load import load_executor
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.safetensors_file import read_safetensors
from paredown.models.fingerprints import file_digests
from paredown.models.resolve import resolve_model
from paredown.spec.kv import KV_DTYPES

RECIPES = ["w8a8", "int4-g32-asym", "fp8", "bf16", "int4-g32-head-int8"]


def verified(folder: Path) -> Path:
    checkpoint = Checkpoint.open(folder)
    write_verification(folder, {}, make_fingerprint(checkpoint, load(checkpoint)))
    return folder


def load(checkpoint: Checkpoint, **options) -> NativeExecutor:
    defaults = {"num_pages": 4, "threads": ThreadPlan.resolve(1)}
    return load_executor(checkpoint, RunOptions(**(defaults | options)))


def check(folder: Path, **options) -> str:
    """Checks the folder as `paredown serve` does."""
    fingerprint = read_fingerprint(folder)
    assert fingerprint is not None
    checkpoint = Checkpoint.open(folder)
    executor = load(checkpoint, **options)
    fingerprint.check_files(checkpoint, executor)
    return fingerprint.check_logits(checkpoint, executor)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny Llama in several formats, verified on the best instruction set."""
    base = tmp_path_factory.mktemp("models")
    make_model("llama", torch.bfloat16, 0).save_pretrained(base / "source")
    write_byte_tokenizer(base / "source")
    source = Checkpoint.open(base / "source")
    for recipe in RECIPES:
        compress(source, base / recipe, recipe)
        verified(base / recipe)
    make_model("llama", torch.bfloat16, 1).save_pretrained(base / "other-source")
    write_byte_tokenizer(base / "other-source")
    compress(Checkpoint.open(base / "other-source"), base / "other", "w8a8")
    verified(base / "other")
    return {path.name: path for path in base.iterdir()}


@pytest.fixture
def copy(models: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(models["w8a8"], tmp_path / "copy"))


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("recipe", RECIPES)
def test_what_was_verified_passes_on_every_instruction_set(
    models, recipe: str, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    said = check(models[recipe])
    assert said == "bit for bit" or said.endswith("(verified with another isa)")
    if isa == supported_isas()[-1]:
        assert said == "bit for bit"


@pytest.mark.parametrize("isa", supported_isas())
def test_the_default_model_passes_on_every_instruction_set(
    isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the format that moves most between sets: inputs and weights both rounded to int8."""
    compress(Checkpoint.open(resolve_model(None)), tmp_path / "w8a8", "w8a8")
    verified(tmp_path / "w8a8")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    check(tmp_path / "w8a8")


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_how_keys_and_values_are_kept_and_how_many_pages_there_are_is_no_matter(
    models, kv_dtype
) -> None:
    assert (
        check(models["w8a8"], kv_dtype=kv_dtype, num_pages=1, threads=ThreadPlan.resolve(2))
        == "bit for bit"
    )


def test_a_flipped_bit_of_any_file_that_counts_is_refused(copy: Path) -> None:
    rng = np.random.default_rng(0)
    place = next(
        place
        for name, place in read_safetensors(copy / "model.safetensors").places.items()
        if name.endswith("down_proj.weight")
    )
    raw = (copy / "model.safetensors").read_bytes()
    for position in rng.integers(place.start, place.end, 4):
        flipped = bytearray(raw)
        flipped[position] ^= 1
        (copy / "model.safetensors").write_bytes(flipped)
        with pytest.raises(CheckpointError, match=r"model\.safetensors is not the file"):
            check(copy)
    (copy / "model.safetensors").write_bytes(raw)
    assert check(copy) == "bit for bit"


def test_a_flipped_code_bit_is_seen_in_the_logits_alone(models, tmp_path: Path) -> None:
    """Where the digests of files were those of the damaged ones."""
    for recipe in ("w8a8", "int4-g32-asym"):
        folder = Path(shutil.copytree(models[recipe], tmp_path / recipe))
        file = folder / "model.safetensors"
        place = next(
            place
            for name, place in read_safetensors(file).places.items()
            if "down_proj.weight" in name and place.dtype in ("I8", "I32")
        )
        raw = bytearray(file.read_bytes())
        raw[place.start + 5] ^= 1
        file.write_bytes(raw)
        fingerprint = read_fingerprint(folder)
        checkpoint = Checkpoint.open(folder)
        damaged = replace(fingerprint, weight_files=file_digests(checkpoint, 1))
        executor = load(checkpoint)
        damaged.check_files(checkpoint, executor)
        with pytest.raises(CheckpointError, match=r"does not compute.*not one bit"):
            damaged.check_logits(checkpoint, executor)


@pytest.mark.parametrize("edit", [{"rope_theta": 20000.0}, {"rms_norm_eps": 0.1}, {"note": 1}])
def test_an_edited_config_is_refused(copy: Path, edit: dict) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | edit))
    with pytest.raises(CheckpointError, match=r"config\.json is not the file"):
        check(copy)


def test_a_tokenizer_that_is_read_from_another_file_is_refused(copy: Path) -> None:
    write_byte_tokenizer(copy, start_token=True)
    (copy / "tokenizer.json").rename(copy / "tokenizer.4.0.json")
    write_byte_tokenizer(copy)
    check(copy)
    path = copy / "tokenizer_config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(config | {"fast_tokenizer_files": ["tokenizer.4.0.json"]}))
    with pytest.raises(CheckpointError, match=r"tokenizer\.4\.0\.json is not the file"):
        check(copy)


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("tokenizer_config.json", {"added_tokens_decoder": {"99": {"content": "not"}}}),
        ("tokenizer_config.json", {"eos_token": "the"}),
        ("tokenizer_config.json", {"split_special_tokens": True}),
        ("tokenizer_config.json", {"clean_up_tokenization_spaces": True}),
        ("special_tokens_map.json", {"additional_special_tokens": ["not"]}),
        ("added_tokens.json", {"not": 99}),
    ],
)
def test_other_tokens_beside_the_tokenizer_are_refused(copy: Path, name: str, edit: dict) -> None:
    path = copy / name
    config = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(config | {"chat_template": "{{ messages }}"}))
    if name == "tokenizer_config.json":
        check(copy)
    path.write_text(json.dumps(config | edit))
    with pytest.raises(CheckpointError, match=r"\(tokens\) is not the file"):
        check(copy)


def test_a_proof_that_says_nothing_of_tokens_beside_the_tokenizer_holds(copy: Path) -> None:
    fields = json.loads((copy / NAME).read_text())
    small = fields["fingerprint"]["small_files"]
    del small[fingerprint_module.TOKENS_BESIDE]
    figures = {k: v for k, v in fields.items() if k not in ("format", "sha256", "fingerprint")}
    write_verification(copy, figures, Fingerprint.from_json(fields["fingerprint"]))
    check(copy)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", NAME])
def test_a_swapped_file_is_refused(models, copy: Path, name: str) -> None:
    if name == "tokenizer.json":
        write_byte_tokenizer(copy, start_token=True)
    else:
        shutil.copyfile(models["other"] / name, copy / name)
    with pytest.raises(CheckpointError, match=r"is not the file that was verified.*--no-verify"):
        check(copy)


def test_a_file_that_is_gone_is_refused(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="digest no such file"):
        check(copy)


def test_files_that_no_figure_depends_on_may_change(copy: Path) -> None:
    (copy / "generation_config.json").write_text('{"eos_token_id": 0}')
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    assert check(copy) == "bit for bit"


def test_without_a_verification_there_is_nothing_to_check(models) -> None:
    assert read_fingerprint(models["source"]) is None


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_verification_is_refused(models, tmp_path_factory, data) -> None:
    raw = (models["w8a8"] / NAME).read_bytes()
    folder = tmp_path_factory.mktemp("damaged")
    position = data.draw(st.integers(0, len(raw) - 2))
    if data.draw(st.booleans()):
        damaged = raw[:position]
    else:
        damaged = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
    (folder / NAME).write_bytes(damaged)
    try:
        fingerprint = read_fingerprint(folder)
    except CheckpointError:
        return
    # A space that became another character of space, or the like: nothing is lost.
    assert fingerprint == read_fingerprint(models["w8a8"])


@pytest.mark.parametrize("version", [0, 2, None, "1"])
def test_another_version_is_refused(copy: Path, version) -> None:
    fields = json.loads((copy / NAME).read_text()) | {"format": version}
    (copy / NAME).write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match=rf"another version.*{version}"):
        read_fingerprint(copy)


@pytest.mark.parametrize(
    "change",
    [
        {"golden": None},
        {"small_files": []},
        {"weight_files": {"a": 1}},
        {"golden": {"sha256": "x"}},
        {"golden.sampled_TK": [[1], [2, 3]]},
        {"golden.sampled_TK": "x"},
        {"golden.log_probabilities_TK": [[0.5]]},
        {"golden.arithmetic": None},
        {"golden.sha256": 1},
    ],
)
def test_fields_that_are_none_are_refused_though_their_digest_is_right(copy, change) -> None:
    fingerprint = read_fingerprint(copy)
    fields = fingerprint.as_json()
    for name, value in change.items():
        *outer, last = name.split(".")
        (fields[outer[0]] if outer else fields)[last] = value

    class Forged:
        def as_json(self):
            return fields

    write_verification(copy, {}, Forged())
    with pytest.raises(CheckpointError, match="damaged"):
        read_fingerprint(copy)


@pytest.mark.parametrize("name", ["llama-tied", "llama-gqa", "gpt2-untied", "opt", "qwen3"])
def test_pages_of_their_own_give_the_logits_that_the_executor_gives(
    name: str, tmp_path: Path
) -> None:
    VARIANTS[name](tmp_path / "model", torch.bfloat16, 0)
    checkpoint = Checkpoint.open(tmp_path / "model")
    cache = CacheConfig(folder=tmp_path / "cache", min_bytes=0)
    packed = load(checkpoint, cache=cache)
    packed.wait_for_cache()
    mapped = load(Checkpoint.open(tmp_path / "model"), cache=cache)
    assert (packed.weights_from, mapped.weights_from) == ("checkpoint", "cache")
    expected = hash_output(run_golden(packed))
    for executor in (packed, mapped, packed.sharing_weights(GOLDEN_KV)):
        assert hash_output(run_golden(executor.sharing_weights(GOLDEN_KV))) == expected


def test_weights_that_are_mapped_are_not_read_again(
    copy: Path, tmp_path: Path, monkeypatch
) -> None:
    cache = CacheConfig(folder=tmp_path / "cache", min_bytes=0)
    load(Checkpoint.open(copy), cache=cache).wait_for_cache()

    def never(*args):
        raise AssertionError("the weights are read")

    monkeypatch.setattr(fingerprint_module, "file_digests", never)
    assert check(copy, cache=cache) == "bit for bit"
    monkeypatch.undo()
    # Another bit in place: the cache does not fit any more, and the file is refused.
    with (copy / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))
    with pytest.raises(CheckpointError, match="is not the file"):
        check(copy, cache=cache)


def elsewhere(fingerprint: Fingerprint) -> Fingerprint:
    """Returns the fingerprint that another processor would write, where the last bits differ."""
    golden = fingerprint.golden
    arithmetic = golden.arithmetic | {"processor": "another", "isa": "sse9"}
    return replace(fingerprint, golden=replace(golden, sha256="0" * 64, arithmetic=arithmetic))


def test_on_other_arithmetic_the_sample_decides(models) -> None:
    checkpoint = Checkpoint.open(models["w8a8"])
    fingerprint = elsewhere(read_fingerprint(models["w8a8"]))
    said = fingerprint.check_logits(checkpoint, load(checkpoint))
    assert said.endswith("(verified with another isa, processor)")
    other = Checkpoint.open(models["other"])
    with pytest.raises(CheckpointError, match=r"differ by \d.*0\.03, with another isa, processor"):
        fingerprint.check_logits(other, load(other))
    sample = np.array(fingerprint.golden.log_probabilities_TK)
    assert fingerprint.golden.difference(sample * 1.04) == pytest.approx(0.04)
    assert fingerprint.golden.difference(sample * np.nan) == np.inf


def test_a_sample_that_does_not_fit_the_model_is_refused(models) -> None:
    checkpoint = Checkpoint.open(models["w8a8"])
    fingerprint = elsewhere(read_fingerprint(models["w8a8"]))
    for sampled in ([[0] * 8], [[300] * 8] * NUM_TOKENS, [[-1] * 8] * NUM_TOKENS):
        wrong = replace(fingerprint, golden=replace(fingerprint.golden, sampled_TK=sampled))
        with pytest.raises(CheckpointError, match="differ by inf"):
            wrong.check_logits(checkpoint, load(checkpoint))


def test_golden_logits_that_are_not_numbers_are_refused(models, tmp_path: Path) -> None:
    """In the embedding of one golden token."""
    folder = Path(shutil.copytree(models["bf16"], tmp_path / "copy"))
    file = folder / "model.safetensors"
    checkpoint = Checkpoint.open(folder)
    place = read_safetensors(file).places["model.embed_tokens.weight"]
    raw = bytearray(file.read_bytes())
    start = place.start + 2 * checkpoint.spec.hidden_size * golden_tokens(checkpoint.spec)[40]
    raw[start : start + 2] = np.array([0x7FC0], "<u2").tobytes()
    file.write_bytes(raw)
    damaged = Checkpoint.open(folder)
    with pytest.raises(CheckpointError, match=r"are not numbers.*of 19200 golden logits"):
        make_fingerprint(damaged, load(damaged))


def test_golden_tokens_never_change() -> None:
    tokens = golden_tokens(toy_spec(vocab_size=50_000))
    assert tokens[:4] == [32769, 24863, 16073, 37441]
    assert len(tokens) == NUM_TOKENS
    assert len(golden_tokens(toy_spec(max_positions=16))) == 16
    assert max(golden_tokens(toy_spec(vocab_size=7))) < 7

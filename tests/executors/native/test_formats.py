"""Checkpoints of every form on the native core, against the PyTorch decoder on the same weights."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.compress import compress
from paredown.errors import ConfigError
from paredown.executors.load import load_executor
from paredown.executors.native import pack_weights
from paredown.executors.native.memory_plan import plan_memory
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.formats.table import FORMATS
from paredown.formats.tensor import StoredTensor
from paredown.kernels.linear_source import LinearSource
from paredown.kernels.native_model import NativeModel
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.files.safetensors_file import read_safetensors, write_safetensors
from paredown.spec.kv import KVSpec

# Every group size divides these.
WIDE = {"hidden_size": 128, "intermediate_size": 256}
STEPS = ["w4a8-g32-qoq", "w4a8-g64-asym-qoq"]
RECIPES = [
    *FORMATS,
    *STEPS,
    "int4-g128-head-int8",
    "int8-head-w8a8",
    "int3-g32-head-int4-g32",
    "fp32-head-fp8",
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("source")
    model = make_model("llama", torch.float32, 0, **WIDE, tie_word_embeddings=True)
    model.save_pretrained(folder)
    return Checkpoint.open(folder)


def native_logits(checkpoint: Checkpoint, ids: list[int], **options: object) -> np.ndarray:
    executor = load_executor(
        checkpoint,
        RunOptions(num_pages=8, kv_dtype="fp32", threads=ThreadPlan.resolve(1), **options),
    )
    pages = list(range(executor.num_pages))
    return executor.step([SequenceSlice(token_ids=ids, start=0, pages=pages, num_logits=len(ids))])


def decoder_logits(checkpoint: Checkpoint, ids: list[int]) -> np.ndarray:
    torch.set_num_threads(1)
    with torch.no_grad():
        return Decoder.from_checkpoint(checkpoint)(torch.tensor([ids]))[0].numpy()


def distance(some: np.ndarray, others: np.ndarray) -> float:
    """Root mean square of the difference over that of the others."""
    return float(np.sqrt(np.mean((some - others) ** 2) / np.mean(others**2)))


def random_ids() -> list[int]:
    return np.random.default_rng(1).integers(0, VOCAB_SIZE, 40).tolist()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_compressed_checkpoint_runs_on_its_own_weights(
    recipe: str, source: Checkpoint, tmp_path: Path
) -> None:
    compress(source, tmp_path / "out", recipe)
    checkpoint, ids = Checkpoint.open(tmp_path / "out"), random_ids()
    expected = decoder_logits(checkpoint, ids)
    assert distance(native_logits(checkpoint, ids, activations="fp32"), expected) <= 1e-4
    # Inputs of 8 bits, or of 8 bits of mantissa, cost much less than other weights would.
    as_served = distance(native_logits(checkpoint, ids), expected)
    assert as_served <= 0.1


@pytest.mark.parametrize("recipe", STEPS)
def test_integer_steps_run_as_int8_rows(
    recipe: str, source: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as by group scales here: sums of integers times row scales of few bits are
    exact in floats too."""
    compress(source, tmp_path / "out", f"{recipe}-head-{recipe}")
    checkpoint, ids = Checkpoint.open(tmp_path / "out"), random_ids()
    given = []
    add_linear = NativeModel.add_linear

    def seen(model: NativeModel, role: str, layer: int, weight: LinearSource) -> None:
        given.append((role, "steps" in weight.arrays))
        add_linear(model, role, layer, weight)

    monkeypatch.setattr(NativeModel, "add_linear", seen)
    logits = native_logits(checkpoint, ids)
    assert set(given) == {(role, True) for role in ("qkv", "o", "up", "down", "output")}
    given.clear()
    for activations in ("int8_group", "fp32"):
        others = native_logits(checkpoint, ids, activations=activations)
        assert distance(others, logits) <= 0.1
    assert not any(has_steps for _, has_steps in given)
    monkeypatch.setattr(pack_weights, "integer_steps", lambda weight: None)
    assert np.array_equal(native_logits(checkpoint, ids), logits)


@pytest.mark.parametrize("recipe", STEPS)
def test_integer_steps_give_the_same_bits_in_any_chunks(
    recipe: str, source: Checkpoint, tmp_path: Path
) -> None:
    compress(source, tmp_path / "out", f"{recipe}-head-{recipe}")
    executor = load_executor(
        Checkpoint.open(tmp_path / "out"), RunOptions(num_pages=8, threads=ThreadPlan.resolve(2))
    )
    ids, pages = random_ids(), list(range(8))

    def rows(sizes: list[int]) -> np.ndarray:
        parts, start = [], 0
        for size in sizes:
            chunk = SequenceSlice(
                token_ids=ids[start : start + size], start=start, pages=pages, num_logits=size
            )
            parts.append(executor.step([chunk]).copy())
            start += size
        return np.concatenate(parts)

    whole = rows([len(ids)])
    for size in (1, 5, 8, 20, 33):
        full, rest = divmod(len(ids), size)
        assert np.array_equal(rows([size] * full + [rest] * (rest > 0)), whole)


def test_activations_can_be_chosen_where_a_weight_takes_them(
    source: Checkpoint, tmp_path: Path
) -> None:
    compress(source, tmp_path / "out", "int8-head-int8")
    checkpoint, ids = Checkpoint.open(tmp_path / "out"), random_ids()
    rows, groups = (
        native_logits(checkpoint, ids, activations=one) for one in ("int8_row", "int8_group")
    )
    assert np.array_equal(groups, native_logits(checkpoint, ids))
    assert not np.array_equal(rows, groups)
    possible = "Possible: int8_group, int16_group, int8_row, bf16, fp32"
    with pytest.raises(ConfigError, match=f"int8_static.*{possible}"):
        load_executor(checkpoint, RunOptions(num_pages=8, activations="int8_static"))
    with pytest.raises(ConfigError, match="are floats"):
        load_executor(source, RunOptions(num_pages=8, activations="int8_row"))


@pytest.mark.parametrize("recipe", ["int4-g32", "int4-g64-asym", "int8", "w8a8", "int3-g32"])
def test_codes_on_bf16_inputs_are_nearer_to_the_decoder(
    recipe: str, source: Checkpoint, tmp_path: Path
) -> None:
    """The output layer and the embedding are fp32, and read floats as they are."""
    compress(source, tmp_path / "out", recipe)
    checkpoint, ids = Checkpoint.open(tmp_path / "out"), random_ids()
    expected = decoder_logits(checkpoint, ids)
    eight = distance(native_logits(checkpoint, ids), expected)
    sixteen = distance(native_logits(checkpoint, ids, activations="bf16"), expected)
    assert 1e-6 < sixteen < eight / 2


def test_weights_without_bf16_inputs_read_finer_ones(tmp_path: Path) -> None:
    make_model("llama", torch.float16, 0, **WIDE).save_pretrained(tmp_path / "half")
    checkpoint, ids = Checkpoint.open(tmp_path / "half"), random_ids()
    floats = native_logits(checkpoint, ids, activations="fp32")
    assert np.array_equal(native_logits(checkpoint, ids, activations="bf16"), floats)


@pytest.mark.parametrize("recipe", ["int4-g32", "int8"])
def test_chunks_do_not_change_the_bits_of_codes_on_bf16_inputs(
    recipe: str, source: Checkpoint, tmp_path: Path
) -> None:
    compress(source, tmp_path / "out", recipe)
    checkpoint, ids = Checkpoint.open(tmp_path / "out"), random_ids()
    whole = native_logits(checkpoint, ids, activations="bf16")
    options = RunOptions(num_pages=8, kv_dtype="fp32", activations="bf16")
    executor = load_executor(checkpoint, options)
    parts = [
        executor.step(
            [
                SequenceSlice(
                    token_ids=ids[first : first + 3],
                    start=first,
                    pages=list(range(8)),
                    num_logits=len(ids[first : first + 3]),
                )
            ]
        )
        for first in range(0, len(ids), 3)
    ]
    assert np.array_equal(np.concatenate(parts), whole)


def test_static_input_scales_are_used(source: Checkpoint, tmp_path: Path) -> None:
    """A w8a8 folder becomes a static one by its config and a scale for each module."""
    compress(source, tmp_path, "w8a8", overwrite=True)
    config = json.loads((tmp_path / "config.json").read_text())
    group = config["quantization_config"]["config_groups"]["group_0"]
    group["input_activations"] |= {"strategy": "tensor", "dynamic": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    path = tmp_path / "model.safetensors"
    tensors = dict(read_safetensors(path))
    modules = [name.removesuffix(".weight_scale") for name in tensors if "weight_scale" in name]
    distances = []
    for scale in (0.2, 1e-4):
        stored = StoredTensor(dtype="F32", array=np.array([scale], np.float32))
        copies = {f"{module}.input_scale": stored for module in modules}
        write_safetensors(tmp_path / "new", tensors | copies, {"format": "pt"})
        (tmp_path / "new").rename(path)
        checkpoint = Checkpoint.open(tmp_path)
        assert checkpoint.linear("q", 0).spec.name == "w8a8-static"
        logits = native_logits(checkpoint, random_ids())
        distances.append(distance(logits, decoder_logits(checkpoint, random_ids())))
    # One scale for all modules is a poor one; with the second nearly all inputs saturate.
    assert distances[0] <= 0.5
    assert distances[1] >= 1


@pytest.mark.parametrize(
    "recipe", ["int3-g32-asym", "fp8", "w8a8", "int4-g128-head-int8", "w4a8-g64-qoq"]
)
def test_the_plan_counts_what_the_core_packs(
    recipe: str, source: Checkpoint, tmp_path: Path
) -> None:
    compress(source, tmp_path / "out", recipe)
    checkpoint = Checkpoint.open(tmp_path / "out")
    plan = plan_memory(checkpoint, KVSpec(num_pages=8), 1)
    packed = load_executor(checkpoint, RunOptions(num_pages=8)).weight_bytes
    # Scales are planned as bf16 and are fp32 here; panels and buffers are padded.
    assert 0.97 * plan.weight_bytes <= packed <= 1.1 * plan.weight_bytes

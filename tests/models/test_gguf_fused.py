"""Modules that hold several roles in GGUF: their rows lie one role behind the other there."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import DECODER_VARIANTS, VARIANTS, VOCAB_SIZE, make_model
from paredown.compress.convert.convert import convert
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.compress.importance import ColumnImportance, Importance
from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.gguf.fitted_rows import fitted_rows
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.file import read_gguf, write_gguf_file
from paredown.models.gguf.header import NewTensor
from paredown.models.gguf.names import LONG_FACTORS, SHORT_FACTORS
from paredown.models.gguf.vocabulary import GGUFVocabulary

NO_WORDS = GGUFVocabulary(metadata={})


def write(folder: Path, variant: str, formats: str | None = None) -> tuple[Checkpoint, Path]:
    (VARIANTS | DECODER_VARIANTS)[variant](folder / "model", torch.float32, 0)
    source, path = Checkpoint.open(folder / "model"), folder / "model.gguf"
    chosen = None if formats is None else GGUF_FORMATS[formats]
    write_gguf(source, path, vocabulary=NO_WORDS, formats=chosen)
    return source, path


def stored(path: Path) -> dict[str, np.ndarray]:
    return {one.name: np.asarray(one.data) for one in gguf.GGUFReader(path).tensors}


def test_neox_rows_are_told_apart_as_llama_cpp_does_it(tmp_path: Path) -> None:
    """All heads' queries, then all keys, then all values, where a folder has them head by head."""
    source, path = write(tmp_path, "gpt-neox")
    name = "gpt_neox.layers.1.attention.query_key_value"
    hidden_size, num_heads = source.spec.hidden_size, source.spec.layers[0].attention.num_heads
    found = stored(path)
    for suffix, shape in (("weight", (hidden_size,)), ("bias", ())):
        ours = source.tensors[f"{name}.{suffix}"].to_float32()
        by_head = ours.reshape(num_heads, 3, hidden_size // num_heads, *shape)
        expected = np.concatenate(
            [by_head[:, part].reshape(hidden_size, *shape) for part in range(3)]
        )
        np.testing.assert_array_equal(found[f"blk.1.attn_qkv.{suffix}"], expected)


def test_phi3_rows_stay_in_their_order(tmp_path: Path) -> None:
    source, path = write(tmp_path, "phi3")
    found = stored(path)
    for name, ours in (
        ("attn_qkv", "self_attn.qkv_proj"),
        ("ffn_up", "mlp.gate_up_proj"),
    ):
        expected = source.tensors[f"model.layers.0.{ours}.weight"].to_float32()
        np.testing.assert_array_equal(found[f"blk.0.{name}.weight"], expected)


@pytest.mark.parametrize("variant", ["gpt-neox", "phi3"])
@pytest.mark.parametrize("formats", ["gguf-q8_0", "gguf-q4_0"])
def test_codes_of_each_role_come_back(variant: str, formats: str, tmp_path: Path) -> None:
    source, path = write(tmp_path, variant, formats)
    found = Checkpoint.open(path)
    quantize = GGUF_FORMATS[formats].linear.quantize
    assert quantize is not None
    for role in source.spec.linear_shapes(0):
        expected = quantize(source.linear(role, 1).dequantize())
        np.testing.assert_array_equal(found.linear(role, 1).at_work(), expected.at_work())
    write_gguf(found, tmp_path / "again.gguf", vocabulary=NO_WORDS)
    first, again = stored(path), stored(tmp_path / "again.gguf")
    assert first.keys() == again.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])


def test_a_fused_module_is_fitted_by_its_importance(tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 512}
    make_model("phi3", torch.float32, 0, **sizes).save_pretrained(tmp_path / "model")
    source = Checkpoint.open(tmp_path / "model")
    module = "model.layers.0.self_attn.qkv_proj"
    sums = np.random.default_rng(1).lognormal(0, 1.5, 256).astype(np.float32)
    one = ColumnImportance(sum_squares_I=sums, num_rows=1.0)
    told = Importance(modules={module: one}, text="t", num_windows=1, num_tokens=1)
    write_gguf(
        source,
        tmp_path / "m.gguf",
        vocabulary=NO_WORDS,
        formats=GGUF_FORMATS["gguf-q4_k_m"],
        importance=told,
    )
    values = source.tensors[f"{module}.weight"].to_float32()
    expected = fitted_rows("Q4_K", values, sums)
    np.testing.assert_array_equal(stored(tmp_path / "m.gguf")["blk.0.attn_qkv.weight"], expected)


@pytest.mark.parametrize(
    ("family", "changes"),
    [("gpt_neox", {}), ("phi3", {}), ("phi", {}), ("gemma2", {"query_pre_attn_scalar": 32})],
)
def test_transformers_loads_a_folder_made_of_the_file(
    family: str, changes: dict[str, object], tmp_path: Path
) -> None:
    make_model(family, torch.float32, 0, **changes).save_pretrained(tmp_path / "model")
    write_byte_tokenizer(tmp_path / "model")
    write_gguf(Checkpoint.open(tmp_path / "model"), tmp_path / "model.gguf")
    convert(Checkpoint.open(tmp_path / "model.gguf"), tmp_path / "again", "fp32")
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, VOCAB_SIZE, (1, 24)))
    with torch.no_grad():
        logits = [
            AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype=torch.float32)(ids).logits
            for name in ("model", "again")
        ]
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("formats", [None, "gguf-q8_0"])
@pytest.mark.parametrize("variant", ["phi", "qwen2", "llama-gqa"])
def test_files_that_fuse_what_a_folder_does_not_are_read(
    variant: str, formats: str | None, tmp_path: Path
) -> None:
    """As older files of Phi-2 do, and llama.cpp reads of every architecture."""
    _, path = write(tmp_path, variant, formats)
    file = read_gguf(path)
    tensors, rows = [], []
    for name, place in file.places.items():
        layer, _, place_name = name.partition(".attn_q.")
        if name.split(".")[-2] in ("attn_k", "attn_v"):
            continue
        raw, shape = file.rows(name), place.shape
        if place_name:
            names = [f"{layer}.attn_{role}.{place_name}" for role in "qkv"]
            name = f"{layer}.attn_qkv.{place_name}"
            raw = np.concatenate([file.rows(one).reshape(-1) for one in names])
            shape = (sum(file.places[one].shape[0] for one in names), *shape[1:])
        tensors.append(NewTensor(name=name, block=place.block, shape=shape))
        rows.append(raw)
    fused = path.with_name("fused.gguf")
    write_gguf_file(fused, file.metadata, tensors, rows)
    ours, again = Checkpoint.open(path), Checkpoint.open(fused)
    assert ours.spec == again.spec
    for name, tensor in ours.tensors.items():
        np.testing.assert_array_equal(again.tensors[name].array, tensor.array)
    longer = rewritten(fused, longer="blk.0.attn_qkv.bias" if variant == "phi" else "")
    if variant == "phi":
        with pytest.raises(CheckpointError, match=r"'blk\.0\.attn_qkv\.bias' has the wrong shape"):
            Checkpoint.open(longer)


def rewritten(path: Path, leave_out: str = "", longer: str = "") -> Path:
    """The same file without a tensor, or with one of another length."""
    file = read_gguf(path)
    names = [name for name in file.places if name != leave_out]
    tensors, rows = [], []
    for name in names:
        place, raw = file.places[name], file.rows(name)
        shape = place.shape
        if name == longer:
            shape, raw = (place.shape[0] + 1,), np.ones((1, 4 * (place.shape[0] + 1)), np.uint8)
        tensors.append(NewTensor(name=name, block=place.block, shape=shape))
        rows.append(raw)
    out = path.with_name("rewritten.gguf")
    write_gguf_file(out, file.metadata, tensors, rows)
    return out


@pytest.mark.parametrize("name", [SHORT_FACTORS, LONG_FACTORS])
def test_half_of_longrope_is_refused(name: str, tmp_path: Path) -> None:
    _, path = write(tmp_path, "phi3-longrope")
    assert Checkpoint.open(path).spec.layers[0].attention.rotary.scaling == "longrope"
    with pytest.raises(CheckpointError, match=f"{name}.*is missing.*0 factors for 16"):
        Checkpoint.open(rewritten(path, leave_out=name))
    with pytest.raises(CheckpointError, match=f"{name}.*the wrong shape.*9 factors for 16"):
        Checkpoint.open(rewritten(path, longer=name))


def test_longrope_of_another_architecture_is_refused(tmp_path: Path) -> None:
    _, path = write(tmp_path, "llama-gqa")
    file = read_gguf(path)
    places = dict(file.places)
    tensors = [
        NewTensor(name=name, block=place.block, shape=place.shape) for name, place in places.items()
    ]
    rows = [file.rows(name) for name in places]
    factors = np.ones((1, 8), np.float32)
    norm = places["output_norm.weight"].block
    tensors.append(NewTensor(name=LONG_FACTORS, block=norm, shape=(8,)))
    write_gguf_file(
        path.with_name("l.gguf"), file.metadata, tensors, [*rows, factors.view(np.uint8)]
    )
    with pytest.raises(UnsupportedError, match=f"as its architecture does not.*{LONG_FACTORS}"):
        Checkpoint.open(path.with_name("l.gguf"))

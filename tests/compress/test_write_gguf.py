"""Whole checkpoints written as GGUF, what is refused, and what is left behind: nothing."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from fakes.tiny_models import VARIANTS
from paredown.compress.compress import compress
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS, GGUFFormats
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import OutputError, UnsupportedError
from paredown.formats.gguf import q4_0, q8_0
from paredown.formats.gguf.floats import BF16
from paredown.formats.gguf.table import encode
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.safetensors_file import read_safetensors, write_safetensors
from paredown.models.gguf.names import OUTPUT
from paredown.models.gguf.vocabulary import GGUFVocabulary
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

NO_WORDS = GGUFVocabulary(metadata={})


@pytest.fixture
def source(tmp_path: Path) -> Checkpoint:
    VARIANTS["llama-tied"](tmp_path / "source", torch.float32, 0)
    return Checkpoint.open(tmp_path / "source")


def only_source_is_left(folder: Path) -> bool:
    return [path.name for path in folder.iterdir()] == ["source"]


@pytest.mark.parametrize("name", ["gguf-q8_0", "gguf-q4_0"])
def test_every_matrix_is_quantized_as_the_package_does_it(
    name: str, source: Checkpoint, tmp_path: Path
) -> None:
    seen: list[float] = []
    result = write_gguf(
        source,
        tmp_path / "out.gguf",
        lambda what, share: seen.append(share),
        formats=GGUF_FORMATS[name],
        vocabulary=NO_WORDS,
    )
    assert seen[0] == 0
    assert seen[-1] == 1
    assert seen == sorted(seen)
    stored = {one.name: one for one in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    kinds = GGUF_FORMATS[name]
    for gguf_name, our_name, block in (
        ("token_embd", "model.embed_tokens", kinds.embedding),
        ("blk.1.ffn_down", "model.layers.1.mlp.down_proj", kinds.linear),
        ("blk.0.attn_v", "model.layers.0.self_attn.v_proj", kinds.linear),
    ):
        values = source.tensors[f"{our_name}.weight"].to_float32()
        found = stored[f"{gguf_name}.weight"]
        assert found.tensor_type.name == block.name
        np.testing.assert_array_equal(found.data, gguf.quantize(values, found.tensor_type))
    assert result.formats["F32"] == 5
    assert sum(result.formats.values()) == 5 + 1 + 14
    assert result.file_bytes == (tmp_path / "out.gguf").stat().st_size
    num_bits = 8 * (tmp_path / "out.gguf").stat().st_size
    assert result.bits_per_weight == num_bits / source.spec.num_parameters()


def test_a_tied_output_layer_of_another_format_is_a_tensor_of_its_own(
    source: Checkpoint, tmp_path: Path
) -> None:
    formats = GGUFFormats(linear=q4_0.FORMAT, output=q8_0.FORMAT, embedding=BF16)
    write_gguf(source, tmp_path / "out.gguf", formats=formats, vocabulary=NO_WORDS)
    written = Checkpoint.open(tmp_path / "out.gguf")
    assert not written.spec.is_tied
    assert written.output().spec.name == "int8-g32"
    assert written.embedding().spec.name == "bf16"
    found = gguf.GGUFReader(tmp_path / "out.gguf").tensors
    assert OUTPUT in {one.name for one in found}


def test_large_weights_are_converted_in_chunks(
    source: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("whole", "parts"):
        write_gguf(
            source,
            tmp_path / f"{name}.gguf",
            formats=GGUF_FORMATS["gguf-q8_0"],
            vocabulary=NO_WORDS,
        )
        monkeypatch.setattr("paredown.compress.convert.write_gguf._CHUNK_VALUES", 300)
    whole, parts = (gguf.GGUFReader(tmp_path / f"{n}.gguf").tensors for n in ("whole", "parts"))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.data, other.data)


def test_int4_codes_of_another_format_are_kept(source: Checkpoint, tmp_path: Path) -> None:
    """compressed-tensors in groups of 32, written as Q4_0: the same codes and scales."""
    compress(source, tmp_path / "int4", "int4-g32")
    checkpoint = Checkpoint.open(tmp_path / "int4")
    halves_only(tmp_path / "int4")
    write_gguf(Checkpoint.open(tmp_path / "int4"), tmp_path / "q4.gguf", vocabulary=NO_WORDS)
    written = Checkpoint.open(tmp_path / "q4.gguf")
    for layer in range(source.spec.num_layers):
        for role in source.spec.linear_shapes(0):
            expected, found = checkpoint.linear(role, layer), written.linear(role, layer)
            np.testing.assert_array_equal(found.values_OI, expected.values_OI)
            assert found.scales_OG is not None
            assert expected.scales_OG is not None
            np.testing.assert_array_equal(
                found.scales_OG, expected.scales_OG.astype(np.float16).astype(np.float32)
            )


def halves_only(folder: Path) -> None:
    """Scales in fp16, as a checkpoint of fp16 floats has them."""
    file = read_safetensors(folder / "model.safetensors")
    tensors = dict(file)
    for name, tensor in tensors.items():
        if name.endswith("weight_scale"):
            halves = tensor.to_float32().astype(np.float16)
            tensors[name] = StoredTensor(dtype="F16", array=halves)
    write_safetensors(folder / "model.safetensors", tensors)


def test_scales_that_gguf_cannot_hold_name_the_module(source: Checkpoint, tmp_path: Path) -> None:
    compress(source, tmp_path / "int4", "int4-g32")
    checkpoint = Checkpoint.open(tmp_path / "int4")
    with pytest.raises(UnsupportedError, match=r"model\.layers\.0\.\S+: GGUF's block .* fp16"):
        write_gguf(checkpoint, tmp_path / "out.gguf", vocabulary=NO_WORDS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["int4", "source"]


def test_a_format_that_gguf_has_not_names_the_module(source: Checkpoint, tmp_path: Path) -> None:
    compress(source, tmp_path / "int8", "int8")
    with pytest.raises(UnsupportedError, match=r"model\.layers\.0\.\S+: .*exactly.*int8"):
        write_gguf(Checkpoint.open(tmp_path / "int8"), tmp_path / "o.gguf", vocabulary=NO_WORDS)
    with pytest.raises(UnsupportedError, match="compressed already"):
        write_gguf(
            Checkpoint.open(tmp_path / "int8"),
            tmp_path / "o.gguf",
            vocabulary=NO_WORDS,
            formats=GGUF_FORMATS["gguf-q8_0"],
        )
    assert not (tmp_path / "o.gguf").exists()


def test_an_output_that_is_there_is_kept(source: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "out.gguf").write_bytes(b"old")
    with pytest.raises(OutputError, match="exists already"):
        write_gguf(source, tmp_path / "out.gguf", vocabulary=NO_WORDS)
    assert (tmp_path / "out.gguf").read_bytes() == b"old"
    write_gguf(source, tmp_path / "out.gguf", vocabulary=NO_WORDS, overwrite=True)
    Checkpoint.open(tmp_path / "out.gguf")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="a folder"):
        write_gguf(source, tmp_path / "folder", vocabulary=NO_WORDS, overwrite=True)
    with pytest.raises(OutputError, match="could not be written"):
        write_gguf(source, tmp_path / "none" / "out.gguf", vocabulary=NO_WORDS)


def test_an_interrupt_leaves_nothing(source: Checkpoint, tmp_path: Path) -> None:
    def interrupt(what: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_gguf(source, tmp_path / "out.gguf", interrupt, vocabulary=NO_WORDS)
    assert only_source_is_left(tmp_path)


def test_values_beyond_f16_are_counted(source: Checkpoint, tmp_path: Path) -> None:
    path = source.path / "model.safetensors"
    tensors = dict(read_safetensors(path))
    name = "model.layers.0.mlp.up_proj.weight"
    values = tensors[name].to_float32()
    values[0, :2] = (1e6, -1e6)
    tensors[name] = StoredTensor(dtype="F32", array=values)
    write_safetensors(path, tensors)
    result = write_gguf(
        Checkpoint.open(source.path),
        tmp_path / "out.gguf",
        formats=GGUF_FORMATS["gguf-f16"],
        vocabulary=NO_WORDS,
    )
    assert result.clamped == {name: 2}


def test_a_gguf_file_of_floats_can_be_compressed(tmp_path: Path) -> None:
    write_gguf(Checkpoint.open(resolve_model(None)), tmp_path / "default.gguf")
    source = Checkpoint.open(tmp_path / "default.gguf")
    compress(source, tmp_path / "int4", "int4-g128")
    written = Checkpoint.open(tmp_path / "int4")
    assert written.spec == source.spec
    assert json.loads((tmp_path / "int4" / "config.json").read_text())["bos_token_id"] == 0
    tokenizers = [Tokenizer.open(path) for path in (source.path, tmp_path / "int4")]
    ours, theirs = (one.encode("Once upon a time, in 1776.") for one in tokenizers)
    assert ours == theirs
    write_gguf(
        Checkpoint.open(resolve_model(None)),
        tmp_path / "q8.gguf",
        formats=GGUF_FORMATS["gguf-q8_0"],
    )
    with pytest.raises(UnsupportedError, match="compressed already"):
        compress(Checkpoint.open(tmp_path / "q8.gguf"), tmp_path / "again", "int4-g128")


def test_quantized_codes_are_written_by_rows(tmp_path: Path) -> None:
    """A weight of one row and one group."""
    block, rows = encode(q8_0.quantize(np.ones((1, 32), np.float32)))
    assert block is q8_0.FORMAT
    assert rows.shape == (1, 34)

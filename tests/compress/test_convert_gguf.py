"""A GGUF file as the source of a conversion."""

from pathlib import Path

import numpy as np
import pytest

from paredown.compress.compress import compress
from paredown.compress.convert.convert import convert
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS, GGUFFormats
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import ConfigError, UnsupportedError
from paredown.formats.gguf import q4_0
from paredown.formats.gguf.floats import BF16
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model


def write(path: Path, formats: GGUFFormats) -> Checkpoint:
    write_gguf(Checkpoint.open(resolve_model(None)), path, formats=formats)
    return Checkpoint.open(path)


def test_codes_become_compressed_tensors(tmp_path: Path) -> None:
    source = write(
        tmp_path / "m.gguf", GGUFFormats(linear=q4_0.FORMAT, output=BF16, embedding=BF16)
    )
    convert(source, tmp_path / "ct", "compressed-tensors")
    found = Checkpoint.open(tmp_path / "ct").linear("q", 1)
    np.testing.assert_array_equal(found.values_OI, source.linear("q", 1).values_OI)
    np.testing.assert_array_equal(found.scales_OG, source.linear("q", 1).scales_OG)


def test_a_quantized_table_becomes_floats_or_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "m.gguf", GGUF_FORMATS["gguf-q4_0"])
    convert(source, tmp_path / "fp32", "fp32")
    found = Checkpoint.open(tmp_path / "fp32")
    np.testing.assert_array_equal(found.embedding().values_OI, source.embedding().dequantize())
    np.testing.assert_array_equal(
        found.linear("k", 0).dequantize(), source.linear("k", 0).dequantize()
    )
    with pytest.raises(UnsupportedError, match=r"embed_tokens: the embedding is quantized"):
        convert(source, tmp_path / "ct", "compressed-tensors")
    assert not (tmp_path / "ct").exists()


def test_calibrated_codes_become_q4_0(tmp_path: Path) -> None:
    compress(Checkpoint.open(resolve_model(None)), tmp_path / "int4", "int4-g32")
    source = Checkpoint.open(tmp_path / "int4")
    with pytest.raises(ConfigError, match=r"m\.gguf"):
        convert(source, tmp_path / "m", "gguf")
    convert(source, tmp_path / "m.gguf", "gguf")
    found = Checkpoint.open(tmp_path / "m.gguf")
    for role in ("q", "down"):
        expected, written = source.linear(role, 1), found.linear(role, 1)
        np.testing.assert_array_equal(written.at_work(), expected.at_work())
    with pytest.raises(UnsupportedError, match="compressed already"):
        convert(source, tmp_path / "n.gguf", "gguf-q8_0")
    convert(Checkpoint.open(resolve_model(None)), tmp_path / "n.gguf", "gguf-q8_0")
    assert Checkpoint.open(tmp_path / "n.gguf").linear("q", 0).spec.name == "int8-g32"

"""A GGUF file as the source of a conversion."""

from pathlib import Path

import numpy as np
import pytest

from paredown.compress.convert import convert
from paredown.compress.write_gguf import GGUF_FORMATS, GGUFFormats, write_gguf
from paredown.errors import UnsupportedError
from paredown.formats.dequantize import dequantize
from paredown.formats.gguf_blocks import BF16, Q4_0
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model


def write(path: Path, formats: GGUFFormats) -> Checkpoint:
    write_gguf(Checkpoint.open(resolve_model(None)), path, formats=formats)
    return Checkpoint.open(path)


def test_codes_become_compressed_tensors(tmp_path: Path) -> None:
    source = write(tmp_path / "m.gguf", GGUFFormats(linear=Q4_0, output=BF16, embedding=BF16))
    convert(source, tmp_path / "ct", "compressed-tensors")
    found = Checkpoint.open(tmp_path / "ct").linear("q", 1)
    np.testing.assert_array_equal(found.values_OI, source.linear("q", 1).values_OI)
    np.testing.assert_array_equal(found.scales_OG, source.linear("q", 1).scales_OG)


def test_a_quantized_table_becomes_floats_or_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "m.gguf", GGUF_FORMATS["gguf-q4_0"])
    convert(source, tmp_path / "fp32", "fp32")
    found = Checkpoint.open(tmp_path / "fp32")
    np.testing.assert_array_equal(found.embedding().values_OI, dequantize(source.embedding()))
    np.testing.assert_array_equal(
        dequantize(found.linear("k", 0)), dequantize(source.linear("k", 0))
    )
    with pytest.raises(UnsupportedError, match=r"embed_tokens: the embedding is quantized"):
        convert(source, tmp_path / "ct", "compressed-tensors")
    assert not (tmp_path / "ct").exists()

"""The on-disk form of load_in_8bit checkpoints."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BitsAndBytesConfig

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.dequantize import unrounded
from paredown.formats.quantize import quantize
from paredown.formats.stored.bitsandbytes import (
    CODES,
    FORMAT,
    ROW_MAXIMA,
    SPEC,
    decode,
    encode,
    parse_quantization_config,
    quantization_config,
    tensor_shapes,
)
from paredown.formats.table import FORMATS
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import Weight


def stored(seed: int, num_rows: int = 5, num_columns: int = 24) -> dict[str, StoredTensor]:
    """As bitsandbytes quantizes (backends/default/ops.py: int8_vectorwise_quant)."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((num_rows, num_columns)).astype(np.float32)
    maxima = np.abs(values).max(axis=1)
    codes = np.rint(values * (np.float32(127) / maxima[:, None])).astype(np.int8)
    return {
        CODES: StoredTensor(dtype="I8", array=codes),
        ROW_MAXIMA: StoredTensor(dtype="F32", array=maxima),
        FORMAT: StoredTensor(dtype="U8", array=np.array(0, np.uint8)),
    }


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_there_and_back(seed: int) -> None:
    tensors = stored(seed)
    weight = decode(tensors)
    assert weight.spec == SPEC
    # The library multiplies by SCB and then by 1/127; two roundings away at most.
    library = tensors[CODES].array * tensors[ROW_MAXIMA].array[:, None] * np.float32(1 / 127)
    np.testing.assert_allclose(unrounded(weight), library, rtol=3e-7)
    again = encode(weight)
    assert {suffix: one.shape for suffix, one in again.items()} == tensor_shapes((5, 24))
    np.testing.assert_array_equal(again[CODES].array, tensors[CODES].array)
    np.testing.assert_allclose(again[ROW_MAXIMA].array, tensors[ROW_MAXIMA].array, rtol=2e-7)
    assert again[FORMAT] == tensors[FORMAT]


def test_an_older_file_may_lack_the_order() -> None:
    tensors = stored(1)
    del tensors[FORMAT]
    assert decode(tensors).shape == (5, 24)
    tensors[FORMAT] = StoredTensor(dtype="U8", array=np.array(2, np.uint8))
    with pytest.raises(UnsupportedError, match="order"):
        decode(tensors)


@pytest.mark.parametrize(
    ("suffix", "array", "problem"),
    [
        (CODES, None, "missing"),
        (ROW_MAXIMA, None, "missing"),
        (CODES, StoredTensor(dtype="U8", array=np.zeros((5, 24), np.uint8)), "wrong dtype"),
        (CODES, StoredTensor(dtype="I8", array=np.zeros(120, np.int8)), "wrong dtype or shape"),
        (ROW_MAXIMA, StoredTensor(dtype="F32", array=np.ones(4, np.float32)), "one value per row"),
        (ROW_MAXIMA, StoredTensor(dtype="F32", array=np.full(5, -1, np.float32)), "magnitudes"),
        (ROW_MAXIMA, StoredTensor(dtype="F32", array=np.full(5, np.nan, np.float32)), "magnitudes"),
    ],
)
def test_bad_tensors_are_refused(suffix: str, array: StoredTensor | None, problem: str) -> None:
    tensors = stored(2)
    if array is None:
        del tensors[suffix]
    else:
        tensors[suffix] = array
    with pytest.raises(CheckpointError, match=problem):
        decode(tensors)


def test_what_it_cannot_hold_is_refused() -> None:
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    for name in ("int4-g32", "int8-asym", "fp8"):
        with pytest.raises(UnsupportedError, match="int8 rows"):
            encode(quantize(values, FORMATS[name], "fp32"))
    codes = np.full((1, 32), 0, np.uint8)
    weight = Weight(spec=SPEC, values_OI=codes, scales_OG=np.ones((1, 1), np.float32))
    with pytest.raises(UnsupportedError, match="-127"):
        encode(weight)


def test_the_config_is_transformers_own() -> None:
    ours = quantization_config(["lm_head"])
    theirs = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=["lm_head"]).to_dict()
    assert {name: theirs[name] for name in ours} == ours
    assert parse_quantization_config(theirs) == ("lm_head",)
    assert parse_quantization_config(ours | {"llm_int8_skip_modules": None}) == ()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"load_in_8bit": False, "load_in_4bit": True}, UnsupportedError),
        ({"quant_method": "gptq"}, UnsupportedError),
        ({"llm_int8_skip_modules": "lm_head"}, CheckpointError),
    ],
)
def test_other_configs_are_refused(change: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_quantization_config(quantization_config([]) | change)

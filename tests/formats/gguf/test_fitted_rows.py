"""Rows fitted to floats: no more error than llama.cpp's own, and right at the edges."""

import ctypes
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.gguf.fitted_rows import FITTED, fitted_rows
from paredown.formats.gguf.table import BLOCK_FORMATS


def values_and_importance(seed: int, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = (rng.standard_t(5, size=shape) * 0.02).astype(np.float32)
    return values, rng.lognormal(0, 1.5, shape[1]).astype(np.float32)


def dequantize(name: str, rows: np.ndarray) -> np.ndarray:
    return gguf.dequantize(rows, gguf.GGMLQuantizationType[name])


def own_weights(name: str, values: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    """The weights that llama.cpp's quantizer of that type has, written out."""
    if name == "Q6_K":
        return np.square(values) if importance is None else importance + 0 * values
    width = 256 if name.endswith("K") else values.shape[1]
    blocks = values.reshape(-1, width)
    squares = np.square(blocks).mean(axis=1, keepdims=True)
    if importance is None:
        return (np.sqrt(squares) + np.abs(blocks)).reshape(values.shape)
    return importance * np.sqrt(2 * squares + blocks**2).reshape(values.shape)


def llama_cpp_rows(name: str, values: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    """What ggml_quantize_chunk makes."""
    llama_cpp = pytest.importorskip("llama_cpp")
    library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    kind = gguf.GGMLQuantizationType[name]
    columns, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows = np.empty((len(values), values.shape[1] // columns * num_bytes), np.uint8)
    library.ggml_quantize_chunk(
        ctypes.c_int(int(kind)),
        ctypes.c_void_p(values.ctypes.data),
        ctypes.c_void_p(rows.ctypes.data),
        ctypes.c_int64(0),
        ctypes.c_int64(values.shape[0]),
        ctypes.c_int64(values.shape[1]),
        ctypes.c_void_p(None if importance is None else importance.ctypes.data),
    )
    return rows


@pytest.mark.parametrize("has_importance", [False, True])
@pytest.mark.parametrize("name", list(FITTED))
def test_no_more_error_than_llama_cpp(name: str, has_importance: bool) -> None:
    values, importance = values_and_importance(1, (24, 1024))
    told = importance if has_importance else None
    theirs = dequantize(name, llama_cpp_rows(name, values, told))
    ours = dequantize(name, fitted_rows(name, values, told))
    weights = own_weights(name, values, told)
    columns = importance if has_importance else 1.0
    for counted in (weights, columns):
        assert (counted * (ours - values) ** 2).sum() <= (counted * (theirs - values) ** 2).sum()


@pytest.mark.parametrize("name", list(FITTED))
@given(seed=st.integers(0, 2**32 - 1), num_threads=st.sampled_from([1, 3]))
@settings(max_examples=8, deadline=None)
def test_the_bytes_are_read_near_the_values(name: str, seed: int, num_threads: int) -> None:
    values, importance = values_and_importance(seed, (70, 1024))
    rows = fitted_rows(name, values, importance, num_threads)
    np.testing.assert_array_equal(rows, fitted_rows(name, values, importance))
    block = BLOCK_FORMATS[name]
    assert rows.shape == (70, block.row_bytes(1024))
    off = dequantize(name, rows) - values
    bits = {"Q4_K": 4, "Q6_K": 6}.get(name, 5)
    assert np.sqrt((importance * off**2).sum() / (importance * values**2).sum()) < 2.0**-bits * 2


@pytest.mark.parametrize("name", list(FITTED))
def test_rows_do_not_depend_on_those_beside_them(name: str) -> None:
    values, importance = values_and_importance(2, (9, 512))
    rows = fitted_rows(name, values, importance)
    np.testing.assert_array_equal(rows[4:5], fitted_rows(name, values[4:5], importance))


@pytest.mark.parametrize("has_importance", [False, True])
@pytest.mark.parametrize("name", list(FITTED))
def test_zeros_and_what_is_hardly_more(name: str, has_importance: bool) -> None:
    importance = np.zeros(512, np.float32) if has_importance else None
    for level in (0.0, 1e-44, 1e-30, 1e-9):
        rows = fitted_rows(name, np.full((2, 512), level, np.float32), importance)
        assert np.isfinite(dequantize(name, rows)).all()
        assert np.abs(dequantize(name, rows)).max() <= 1e-6


@pytest.mark.parametrize("name", list(FITTED))
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_values_that_fit_stay_numbers(name: str, data: st.DataObject) -> None:
    elements = st.one_of(st.floats(-6e4, 6e4, width=32), st.sampled_from([0.0, 6e4, -6e4]))
    few = data.draw(st.lists(elements, min_size=1, max_size=8))
    values = np.resize(np.array(few, np.float32), (1, 256))
    found = dequantize(name, fitted_rows(name, values, None))
    assert np.isfinite(found).all()
    assert np.abs(found - values).max() <= 0.2 * np.abs(values).max() + 1e-6


@pytest.mark.parametrize("name", list(FITTED))
def test_values_that_cannot_be_held_are_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="not finite"):
        fitted_rows(name, np.full((1, 256), np.nan, np.float32), None)
    with pytest.raises(UnsupportedError, match="this large"):
        fitted_rows(name, np.full((1, 256), 1e8, np.float32), None)


def test_columns_of_no_importance_do_not_matter() -> None:
    """Half of the columns count, and so the others may be far off."""
    values, _ = values_and_importance(3, (16, 512))
    half = np.tile([1.0, 0.0], 256).astype(np.float32)
    with_half = dequantize("Q4_K", fitted_rows("Q4_K", values, half)) - values
    without = dequantize("Q4_K", fitted_rows("Q4_K", values, None)) - values
    assert (with_half[:, 0::2] ** 2).sum() < 0.85 * (without[:, 0::2] ** 2).sum()

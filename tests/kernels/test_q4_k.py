"""Native layers in GGUF's Q4_K: the integer reference bit for bit, on every instruction set."""

from itertools import product

import numpy as np
import pytest

from drivers.native_linear import ISAS, native_linear, run_linear
from paredown.formats.gguf.q4_k import dequantize
from references.linear import LinearCase, quantized_input
from references.q4_k import BLOCK_BYTES, linear, pack, quantize, random_rows, unpack


def case_of(rows_OB: np.ndarray, bias_O: np.ndarray | None = None) -> LinearCase:
    columns = rows_OB.shape[1] // BLOCK_BYTES * 256
    return LinearCase(
        kind="q4_k",
        values_OI=rows_OB,
        group_size=columns,
        bias_O=bias_O,
        activations="int8_group",
    )


def float_values(rows_OB: np.ndarray) -> np.ndarray:
    return dequantize(rows_OB.reshape(-1, BLOCK_BYTES)).reshape(len(rows_OB), -1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("columns", [256, 768, 2304])
def test_layers_are_the_integer_reference_bit_for_bit(isa: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    for num_rows, has_bias in product((16, 37, 75, 96), (True, False)):
        rows = random_rows(rng, num_rows, columns)
        bias = rng.normal(size=num_rows).astype(np.float32) if has_bias else None
        x = (rng.normal(size=(70, columns)) * rng.lognormal(size=(70, 1))).astype(np.float32)
        x[3] = 0
        expected = linear(rows, x, bias)
        for num_tokens in (1, 2, 3, 4, 7, 16, 33, 70):
            found = run_linear(case_of(rows, bias), x[:num_tokens], isa)
            np.testing.assert_array_equal(found, expected[:num_tokens])


@pytest.mark.parametrize("isa", ISAS)
def test_the_largest_sums_do_not_overflow(isa: str) -> None:
    rows = np.full((32, 2 * BLOCK_BYTES), 255, np.uint8)
    rows.reshape(32, 2, BLOCK_BYTES)[:, :, :4] = np.array([1, -1], np.float16).view(np.uint8)
    x = np.ones((5, 512), np.float32)
    x[1], x[2, ::2] = -1, -1
    for num_tokens in (1, 5):
        found = run_linear(case_of(rows), x[:num_tokens], isa)
        np.testing.assert_array_equal(found, linear(rows, x[:num_tokens]))


@pytest.mark.parametrize("isa", ISAS)
def test_threads_and_neighbours_change_no_bit(isa: str) -> None:
    rng = np.random.default_rng(5)
    rows = random_rows(rng, 160, 512)
    x = rng.normal(size=(40, 512)).astype(np.float32)
    whole = run_linear(case_of(rows), x, isa, num_threads=2)
    for token in (0, 17, 39):
        np.testing.assert_array_equal(run_linear(case_of(rows), x[[token]], isa), whole[[token]])


@pytest.mark.parametrize("isa", ISAS)
def test_inputs_that_are_no_numbers_give_none(isa: str) -> None:
    rng = np.random.default_rng(6)
    rows = random_rows(rng, 16, 512)
    x = rng.normal(size=(4, 512)).astype(np.float32)
    x[1, 300], x[2, 5] = np.nan, np.inf
    for one, is_number in zip(x, (True, False, False, True), strict=True):
        assert np.isfinite(run_linear(case_of(rows), one[None], isa)).all() == is_number
    found = np.isfinite(run_linear(case_of(rows), x, isa))
    np.testing.assert_array_equal(found, np.array([[True], [False], [False], [True]]) * found[:1])


def test_the_reference_is_the_dequantized_weight_with_rounded_inputs() -> None:
    rng = np.random.default_rng(7)
    rows = random_rows(rng, 24, 1024)
    x = rng.normal(size=(9, 1024)).astype(np.float32)
    seen = quantized_input(x, 256)
    expected = seen @ float_values(rows).astype(np.float64).T
    np.testing.assert_allclose(linear(rows, x), expected, atol=1e-5 * np.abs(expected).max())


def test_blocks_are_packed_as_they_are_unpacked() -> None:
    rows = random_rows(np.random.default_rng(8), 5, 512)
    np.testing.assert_array_equal(pack(unpack(rows)), rows)


def test_the_simple_quantizer_is_near_the_values() -> None:
    values = np.random.default_rng(9).normal(size=(8, 512)).astype(np.float32)
    error = float_values(quantize(values)) - values
    assert np.sqrt(np.mean(error**2)) < 0.12


@pytest.mark.parametrize("isa", ISAS)
def test_a_weight_takes_the_bytes_of_the_file(isa: str) -> None:
    rows = random_rows(np.random.default_rng(10), 64, 2048)
    assert native_linear(case_of(rows), isa).num_bytes == rows.nbytes


def test_what_does_not_fit_super_blocks_is_refused() -> None:
    rows = random_rows(np.random.default_rng(11), 16, 512)
    with pytest.raises(ValueError, match="whole blocks"):
        native_linear(case_of(np.ascontiguousarray(rows[:, :200])), "generic")
    other = LinearCase(kind="q4_k", values_OI=rows, group_size=512, activations="int8_row")
    with pytest.raises(ValueError, match="int8 activations with a scale for each"):
        native_linear(other, "generic")
    scaled = LinearCase(
        kind="q4_k",
        values_OI=rows,
        group_size=512,
        scales_OG=np.ones((16, 1), np.float32),
        activations="int8_group",
    )
    with pytest.raises(ValueError, match="no array 'scales'"):
        native_linear(scaled, "generic")

"""Native layers in GGUF's blocks: the integer reference bit for bit, on every instruction set."""

import numpy as np
import pytest

from drivers.native_linear import ISAS, native_linear, run_linear
from paredown.spec.weight import DTYPES
from references.blocks import KINDS, linear, random_rows, values
from references.linear import LinearCase, quantized_input

BLOCKED = sorted(KINDS)


def case_of(kind: str, rows_OB: np.ndarray, bias_O: np.ndarray | None = None) -> LinearCase:
    columns = rows_OB.shape[1] // KINDS[kind].num_bytes * KINDS[kind].num_columns
    return LinearCase(
        kind=kind,
        values_OI=rows_OB,
        group_size=columns,
        bias_O=bias_O,
        activations="int8_group",
    )


def columns_of(kind: str, num_blocks: int) -> int:
    """Whole blocks; short ones fill no stretch of 512 columns."""
    return 256 * num_blocks + (32 if KINDS[kind].num_columns == 32 else 0)


def test_every_kind_in_blocks_has_a_reference() -> None:
    assert set(BLOCKED) == {dtype for dtype, traits in DTYPES.items() if traits.block is not None}


@pytest.mark.parametrize("kind", BLOCKED)
@pytest.mark.parametrize("num_blocks", [1, 3])
def test_layers_are_the_integer_reference_bit_for_bit(kind: str, num_blocks: int) -> None:
    rng = np.random.default_rng(num_blocks)
    columns = columns_of(kind, num_blocks)
    for num_rows, has_bias in ((16, True), (37, False), (96, False)):
        rows = random_rows(rng, kind, num_rows, columns)
        bias = rng.normal(size=num_rows).astype(np.float32) if has_bias else None
        x = (rng.normal(size=(33, columns)) * rng.lognormal(size=(33, 1))).astype(np.float32)
        x[3] = 0
        expected = linear(kind, rows, x, bias)
        for isa in ISAS:
            for num_tokens in (1, 2, 3, 4, 7, 33):
                found = run_linear(case_of(kind, rows, bias), x[:num_tokens], isa)
                np.testing.assert_array_equal(found, expected[:num_tokens], err_msg=isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", BLOCKED)
def test_the_largest_sums_do_not_overflow(kind: str, isa: str) -> None:
    case = KINDS[kind]
    for fill in (0, 127, 128, 255):
        rows = np.full((32, 3, case.num_bytes), fill, np.uint8)
        for start in case.halves:
            rows[:, :, start : start + 2] = np.array([1], np.float16).view(np.uint8)
        if not case.halves:
            rows[:, :, 0] = 127
        rows = rows.reshape(32, -1)
        x = np.ones((5, 3 * case.num_columns), np.float32)
        x[1], x[2, ::2] = -1, -1
        for num_tokens in (1, 5):
            found = run_linear(case_of(kind, rows), x[:num_tokens], isa)
            np.testing.assert_array_equal(found, linear(kind, rows, x[:num_tokens]))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", BLOCKED)
def test_threads_and_neighbours_change_no_bit(kind: str, isa: str) -> None:
    rng = np.random.default_rng(5)
    rows = random_rows(rng, kind, 160, 768)
    x = rng.normal(size=(40, 768)).astype(np.float32)
    whole = run_linear(case_of(kind, rows), x, isa, num_threads=2)
    for token in (0, 17, 39):
        one = run_linear(case_of(kind, rows), x[[token]], isa)
        np.testing.assert_array_equal(one, whole[[token]])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", BLOCKED)
def test_inputs_that_are_no_numbers_give_none(kind: str, isa: str) -> None:
    rng = np.random.default_rng(6)
    rows = random_rows(rng, kind, 16, 512)
    x = rng.normal(size=(4, 512)).astype(np.float32)
    x[1, 300], x[2, 5] = np.nan, np.inf
    for one, is_number in zip(x, (True, False, False, True), strict=True):
        assert np.isfinite(run_linear(case_of(kind, rows), one[None], isa)).all() == is_number
    found = np.isfinite(run_linear(case_of(kind, rows), x, isa))
    np.testing.assert_array_equal(found, np.array([[True], [False], [False], [True]]) * found[:1])


@pytest.mark.parametrize("kind", BLOCKED)
def test_the_reference_is_the_dequantized_weight_with_rounded_inputs(kind: str) -> None:
    rng = np.random.default_rng(7)
    rows = random_rows(rng, kind, 24, 1024)
    x = rng.normal(size=(9, 1024)).astype(np.float32)
    seen = quantized_input(x, KINDS[kind].num_columns)
    expected = seen @ values(kind, rows).T
    np.testing.assert_allclose(linear(kind, rows, x), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", BLOCKED)
def test_a_weight_takes_the_bytes_that_its_traits_tell(kind: str, isa: str) -> None:
    rows = random_rows(np.random.default_rng(10), kind, 64, 2048)
    block = DTYPES[kind].block
    assert block is not None
    num_bytes = 64 * 2048 // block.num_columns * (block.held_bytes or block.num_bytes)
    assert native_linear(case_of(kind, rows), isa).num_bytes == num_bytes


@pytest.mark.parametrize("kind", BLOCKED)
def test_what_does_not_fit_blocks_is_refused(kind: str) -> None:
    rows = random_rows(np.random.default_rng(11), kind, 16, 512)
    with pytest.raises(ValueError, match="whole blocks"):
        native_linear(case_of(kind, np.ascontiguousarray(rows[:, :-5])), "generic")
    other = LinearCase(kind=kind, values_OI=rows, group_size=512, activations="int8_row")
    with pytest.raises(ValueError, match="int8 activations with a scale for each"):
        native_linear(other, "generic")

"""int4 weights whose groups have integer steps, on every instruction set of this machine: they are
int8 weights with one scale per row, to the last bit."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.native_linear import native_linear, run_linear
from paredown.kernels.isa import supported_isas
from references.linear import (
    LinearCase,
    int8_rows,
    linear_reference,
    random_stepped_case,
    seen_input,
)

ISAS = supported_isas()
# Around the borders of decoding in registers, of tiles and of passes over tiles.
TOKEN_COUNTS = (1, 2, 5, 7, 8, 13, 16, 17, 32, 33, 50, 70)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activations", ["int8_row", "int8_static"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_sums_are_those_of_naive_integers(isa: str, activations: str, symmetric: bool) -> None:
    rng = np.random.default_rng(7)
    for group, shape in product((32, 64, 128), ((16, 128), (37, 384), (70, 256))):
        case = random_stepped_case(
            rng, shape, group_size=group, symmetric=symmetric, activations=activations
        )
        for num_tokens in (1, 4, 7, 12, 40):
            x = rng.normal(size=(num_tokens, shape[1])).astype(np.float32)
            expected = linear_reference(case, x)
            error = np.abs(run_linear(case, x, isa) - expected).max()
            assert error <= 1e-6 * max(1.0, np.abs(expected).max())


@settings(max_examples=100, deadline=None)
@given(
    isa=st.sampled_from(ISAS),
    activations=st.sampled_from(["int8_row", "int8_static"]),
    group_size=st.sampled_from([32, 64, 96, 128, 1024]),
    rows=st.integers(1, 90),
    num_groups=st.integers(1, 12),
    num_tokens=st.integers(1, 80),
    num_threads=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_bits_are_those_of_int8_rows(
    isa: str,
    activations: str,
    group_size: int,
    rows: int,
    num_groups: int,
    num_tokens: int,
    num_threads: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    columns = group_size * num_groups
    case = random_stepped_case(
        rng,
        (rows, columns),
        group_size=group_size,
        symmetric=seed % 2 == 0,
        activations=activations,
    )
    x = rng.normal(size=(num_tokens, columns)).astype(np.float32)
    y = run_linear(case, x, isa, num_threads)
    assert np.array_equal(y, run_linear(int8_rows(case), x, isa))
    assert np.array_equal(y[:1], run_linear(case, x[:1], isa))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("num_rows", "columns"), [(75, 1216), (75, 4608), (90, 4608)])
def test_every_count_of_tokens_gives_a_row_the_same_bits(
    isa: str, num_rows: int, columns: int
) -> None:
    rng = np.random.default_rng(8)
    case = random_stepped_case(rng, (num_rows, columns), group_size=32, symmetric=False)
    x = rng.normal(size=(max(TOKEN_COUNTS), columns)).astype(np.float32)
    linear = native_linear(case, isa, 2)
    expected = run_linear(int8_rows(case), x, isa)
    for num_tokens in TOKEN_COUNTS:
        y = np.empty((num_tokens, num_rows), dtype=np.float32)
        linear.run(x[:num_tokens], y)
        assert np.array_equal(y, expected[:num_tokens])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("num_tokens", [1, 7, 40])
def test_every_code_is_exact_with_every_step(isa: str, num_tokens: int) -> None:
    """Row r has step r + 1; a token sees one column at a time."""
    steps = np.arange(1, 17, dtype=np.uint8)[:, None]
    codes = np.tile(np.arange(16, dtype=np.uint8), (16, 4))
    scales = np.ones((16, 1), dtype=np.float32)
    for zero in (None, 8):
        case = LinearCase(
            kind="int4",
            values_OI=codes,
            group_size=64,
            scales_OG=scales,
            zero_points_OG=None if zero is None else np.full((16, 1), zero, dtype=np.uint8),
            steps_OG=steps,
            activations="int8_row",
        )
        for column in range(16):
            x = np.zeros((num_tokens, 64), dtype=np.float32)
            x[:, column] = 127.0
            expected = 127.0 * (column - 8) * steps[:, 0].astype(np.float64)
            assert np.array_equal(run_linear(case, x, isa), np.tile(expected, (num_tokens, 1)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("num_tokens", [1, 7, 40])
@pytest.mark.parametrize("columns", [128, 65536])
def test_the_largest_codes_neither_saturate_nor_overflow(
    isa: str, num_tokens: int, columns: int
) -> None:
    for code, zero, step in ((0, 8, 16), (15, 8, 16), (0, 15, 8), (15, 0, 8)):
        case = LinearCase(
            kind="int4",
            values_OI=np.full((16, columns), code, dtype=np.uint8),
            group_size=64,
            scales_OG=np.ones((16, 1), dtype=np.float32),
            zero_points_OG=np.full((16, columns // 64), zero, dtype=np.uint8),
            steps_OG=np.full((16, columns // 64), step, dtype=np.uint8),
            activations="int8_row",
        )
        for sign in (1.0, -1.0):
            x = np.full((num_tokens, columns), sign * 127.0, dtype=np.float32)
            expected = np.float32(sign * 127 * columns * (code - zero) * step)
            assert (run_linear(case, x, isa) == expected).all()


@pytest.mark.parametrize("isa", ISAS)
def test_instruction_sets_agree_to_the_last_bit(isa: str) -> None:
    """Sums are exact, and each of the two scales is one product."""
    rng = np.random.default_rng(9)
    case = replace(random_stepped_case(rng, (48, 512), group_size=64), bias_O=None)
    x = rng.normal(size=(20, 512)).astype(np.float32)
    limit = np.abs(x).max(axis=1, keepdims=True)
    input_scales_T1 = limit / np.float32(127)
    codes_TI = np.rint(seen_input(case, x) / input_scales_T1).astype(np.int64)
    sums_TO = codes_TI @ (int8_rows(case).values_OI.astype(np.int64) - 128).T
    assert case.scales_OG is not None
    expected = sums_TO.astype(np.float32) * case.scales_OG.T * input_scales_T1
    assert np.array_equal(run_linear(case, x, isa), expected)


def test_what_does_not_fit_is_refused() -> None:
    case = random_stepped_case(np.random.default_rng(0), (16, 64), group_size=32)
    steps = case.steps_OG
    assert steps is not None

    def refused(message: str, **changes: object) -> None:
        with pytest.raises(ValueError, match=message):
            native_linear(replace(case, **changes), "generic")

    refused("row 0, group 0 is not from 1 to 16", steps_OG=np.zeros_like(steps))
    refused("row 0, group 0 is not from 1 to 16", steps_OG=np.full_like(steps, 17))
    refused("steps are of int4", kind="int8")
    refused("steps are of int4", activations="int8_group")
    refused("steps are of int4", activations="fp32")
    refused("multiple of 32", group_size=16, steps_OG=np.ones((16, 4), dtype=np.uint8))
    refused(r"scales are \[rows, 1\]", scales_OG=np.ones((16, 2), dtype=np.float32))
    refused(r"scales are \[rows, 1\]", steps_OG=steps[:, :1].copy())


def test_every_code_of_a_group_must_fit_int8() -> None:
    """(15 - 4) * 12 = 132 is no int8 code, nor is (0 - 9) * 15 = -135, whatever codes occur."""
    case = random_stepped_case(np.random.default_rng(0), (16, 64), group_size=32)
    for zero, step, largest in ((4, 12, 11), (9, 15, 14), (8, 17, 16)):
        zeros, steps = np.full((16, 2), 8, dtype=np.uint8), np.ones((16, 2), dtype=np.uint8)
        zeros[3, 1] = zero
        steps[3, 1] = largest
        native_linear(replace(case, zero_points_OG=zeros, steps_OG=steps), "generic")
        steps[3, 1] = step
        with pytest.raises(ValueError, match="row 3, group 1 is not"):
            native_linear(replace(case, zero_points_OG=zeros, steps_OG=steps), "generic")


def test_a_step_takes_a_byte_of_a_group() -> None:
    rng = np.random.default_rng(0)
    fine, coarse = (
        native_linear(random_stepped_case(rng, (16, 1024), group_size=group), "generic").num_bytes
        for group in (32, 256)
    )
    assert fine - coarse == 16 * (1024 // 32 - 1024 // 256)

"""bf16 with short exponents has the bits of bf16, in three quarters of the room."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.native_linear import native_linear, run_linear
from paredown.kernels.isa import supported_isas
from paredown.spec.weight import SHORT_BF16_BITS, SHORT_BF16_ISAS
from references.linear import LinearCase, random_case

ISAS = supported_isas()
# Around the borders of tiles, and of widening in registers.
TOKEN_COUNTS = (1, 2, 3, 4, 7, 15, 16, 17, 33, 70)
PANEL_ROWS = 16


def beside_many_exponents(case: LinearCase) -> LinearCase:
    """The same rows and three times as many in which all exponents are as frequent, so that the
    weight is packed as it is."""
    num_rows, num_columns = case.values_OI.shape
    padded = -(-num_rows // PANEL_ROWS) * PANEL_ROWS
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 255 << 7, size=(4 * padded, num_columns)).astype(np.uint16)
    rows[:num_rows] = case.values_OI
    return replace(case, values_OI=rows, bias_O=None)


def assert_same_bits(case: LinearCase, isa: str, token_counts: tuple[int, ...]) -> None:
    num_rows, num_columns = case.values_OI.shape
    x_TI = np.random.default_rng(6).normal(size=(max(token_counts), num_columns))
    for count in token_counts:
        inputs = x_TI[:count].astype(np.float32)
        plain = run_linear(beside_many_exponents(case), inputs, isa)[:, :num_rows]
        np.testing.assert_array_equal(run_linear(case, inputs, isa), plain)


def bf16_case(values_OI: np.ndarray) -> LinearCase:
    case = random_case(np.random.default_rng(0), "bf16", values_OI.shape)
    return replace(case, values_OI=values_OI.astype(np.uint16), bias_O=None)


def normal_rows(seed: int, shape: tuple[int, int]) -> np.ndarray:
    return random_case(np.random.default_rng(seed), "bf16", shape).values_OI


@pytest.mark.parametrize("isa", ISAS)
def test_the_core_shortens_for_the_sets_that_are_named(isa: str) -> None:
    shape = (512, 1024)
    case = bf16_case(normal_rows(1, shape))
    bits = 8 * native_linear(case, isa).num_bytes / np.prod(shape)
    if isa in SHORT_BF16_ISAS:
        assert bits == pytest.approx(SHORT_BF16_BITS, abs=0.1)
    else:
        assert bits == 16
    on_floats = replace(case, activations="fp32")
    assert native_linear(on_floats, isa).num_bytes == 2 * np.prod(shape)


@pytest.mark.parametrize("isa", ISAS)
def test_a_weight_of_many_exponents_stays_as_it_is(isa: str) -> None:
    case = beside_many_exponents(bf16_case(normal_rows(2, (32, 256))))
    assert native_linear(case, isa).num_bytes == 2 * case.values_OI.size


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", [(16, 32), (75, 96), (90, 2080), (48, 1056)])
def test_products_have_the_same_bits(isa: str, shape: tuple[int, int]) -> None:
    """Panels without another beside them, columns that fill no stretch; in wide layers some blocks
    are wide."""
    assert_same_bits(bf16_case(normal_rows(3, shape)), isa, TOKEN_COUNTS)


@pytest.mark.parametrize("isa", ISAS)
def test_zeros_subnormal_and_the_largest_numbers_keep_their_bits(isa: str) -> None:
    values = normal_rows(4, (64, 512)).copy()
    rng = np.random.default_rng(4)
    rare = rng.random(values.shape) < 0.002
    values[rare] = rng.choice([0, 0x8000, 0x0001, 0x807F, 0x7F7F, 0xFF7F, 0x0080], rare.sum())
    values[:, 100:300] = 0
    assert_same_bits(bf16_case(values), isa, (1, 5, 20))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_rows=st.integers(1, 70),
    num_blocks=st.integers(1, 40),
    num_exponents=st.integers(1, 20),
    rare_share=st.sampled_from([0.0, 1e-4, 1e-3, 1e-2]),
    num_tokens=st.integers(1, 40),
    isa=st.sampled_from(ISAS),
)
def test_any_weight_has_the_same_bits(
    seed: int,
    num_rows: int,
    num_blocks: int,
    num_exponents: int,
    rare_share: float,
    num_tokens: int,
    isa: str,
) -> None:
    rng = np.random.default_rng(seed)
    shape = (num_rows, 32 * num_blocks)
    exponents = 100 + rng.integers(0, num_exponents, size=shape)
    rare = rng.random(shape) < rare_share
    exponents[rare] = rng.integers(0, 160, rare.sum())
    values = rng.integers(0, 2, shape) << 15 | exponents << 7 | rng.integers(0, 128, shape)
    assert_same_bits(bf16_case(values), isa, (num_tokens,))

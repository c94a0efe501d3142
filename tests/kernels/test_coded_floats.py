"""Codes times inputs that are not rounded to int8: the same bits on every instruction set with a
fused multiply-add, for any number of tokens, and those of the reference."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from drivers.native_linear import ISAS, native_linear, run_linear
from references.coded import coded_linear
from references.linear import INTEGER_BITS, LinearCase, linear_reference, random_case

FUSED = [isa for isa in ISAS if isa != "generic"]
INPUTS = ("bf16", "fp32")


def case_of(
    kind: str, shape: tuple[int, int], group_size: int | None, symmetric: bool, activations: str
) -> LinearCase:
    rng = np.random.default_rng(5)
    return random_case(
        rng,
        kind,
        shape,
        group_size=group_size,
        symmetric=symmetric,
        activations=activations,
        bf16_scales=symmetric,
    )


def inputs(num_tokens: int, columns: int) -> np.ndarray:
    """Some so small that their products are no normal floats."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(num_tokens, columns)).astype(np.float32)
    x[rng.random(x.shape) < 0.05] *= np.float32(1e-36)
    return x


@pytest.mark.parametrize("isa", FUSED)
@pytest.mark.parametrize("kind", INTEGER_BITS)
@pytest.mark.parametrize("activations", INPUTS)
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_bits_are_those_of_one_product_after_the_other(
    isa: str, kind: str, activations: str, symmetric: bool
) -> None:
    for shape, group in (((3, 96), 32), ((2, 128), 64), ((2, 72), None)):
        case = case_of(kind, shape, group, symmetric, activations)
        x = inputs(2, shape[1])
        if activations == "fp32":
            x[np.abs(x) < 1e-30] = 0.0
        expected = coded_linear(case, x)
        assert np.array_equal(run_linear(case, x, isa), expected)
        assert np.array_equal(run_linear(case, x[1:], isa), expected[1:])


@pytest.mark.parametrize("kind", INTEGER_BITS)
@pytest.mark.parametrize("activations", INPUTS)
def test_no_set_no_batch_and_no_thread_changes_a_bit(kind: str, activations: str) -> None:
    """Groups within a stretch that is decoded at once, as wide as the row, and cut by stretches."""
    layers = (
        ((37, 384), 128),
        ((88, 192), 64),
        ((40, 48), None),
        ((90, 4608), 96),
        ((34, 4608), 2304),
        ((50, 4608), None),
    )
    for (shape, group), symmetric in product(layers, (True, False)):
        case = case_of(kind, shape, group, symmetric, activations)
        x = inputs(41, shape[1])
        whole = run_linear(case, x, FUSED[0])
        assert np.isfinite(whole).all()
        for isa, num_tokens in product(FUSED, (1, 2, 5, 7, 41)):
            part = run_linear(case, x[:num_tokens], isa, num_threads=2)
            assert np.array_equal(part, whole[:num_tokens]), (isa, shape, num_tokens)


@pytest.mark.parametrize("isa", ISAS)
def test_the_largest_codes_are_exact_in_bf16(isa: str) -> None:
    """255 and -255 have eight bits, as many as bf16 holds."""
    for code, zero in ((255, 0), (0, 255)):
        case = LinearCase(
            kind="int8",
            values_OI=np.full((16, 64), code, dtype=np.uint8),
            group_size=64,
            scales_OG=np.ones((16, 1), dtype=np.float32),
            zero_points_OG=np.full((16, 1), zero, dtype=np.uint8),
            activations="bf16",
        )
        y = run_linear(case, np.ones((2, 64), dtype=np.float32), isa)
        assert np.array_equal(y, np.full((2, 16), 64.0 * (code - zero)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activations", INPUTS)
def test_what_is_no_number_stays_none(isa: str, activations: str) -> None:
    case = case_of("int4", (16, 64), 32, True, activations)
    x = inputs(3, 64)
    x[1, 7], x[2, 40] = np.nan, np.inf
    y = run_linear(case, x, isa)
    assert np.isfinite(y[0]).all()
    assert not np.isfinite(y[1:]).any()


def test_sixteen_bits_are_nearer_than_eight() -> None:
    """Of the same codes, bf16 inputs leave less than a tenth of the error of int8 ones."""
    x = inputs(8, 256)
    errors = {}
    for activations in ("int8_group", *INPUTS):
        case = replace(case_of("int4", (64, 256), 64, True, "fp32"), activations=activations)
        exact = linear_reference(replace(case, activations="fp32"), x)
        errors[activations] = np.abs(run_linear(case, x, ISAS[-1]) - exact).max()
    assert errors["fp32"] < errors["bf16"] / 10
    assert errors["bf16"] < errors["int8_group"] / 3


def test_rows_too_wide_for_one_stretch_are_packed_as_others_are() -> None:
    case = case_of("int4", (32, 4608), 1536, False, "bf16")
    linear = native_linear(case, ISAS[-1])
    eight = native_linear(replace(case, activations="int8_group"), ISAS[-1])
    assert linear.num_bytes == eight.num_bytes

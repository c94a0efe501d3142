"""Integer products and chains of them, against Python's own integers and fractions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paredown.compress.activation_range import scale_of_range
from paredown.compress.activations import ActivationGrid, StaticScale, round_activations
from paredown.compress.fit_grid import fit_grid
from paredown.compress.grid import grouped
from paredown.compress.integer_product import four_terms, scaled_product
from paredown.compress.requantize import (
    IntegerLayer,
    fixed_point,
    make_integer_layer,
    requantized,
    run_chain,
)
from paredown.errors import UnsupportedError
from paredown.formats.table import FORMATS

ASYMMETRIC = ActivationGrid(granularity="tensor", symmetric=False)


def exact_accumulators(x_TI, zx_T, w_OI, zw_OG) -> list[list[list[int]]]:
    """The definition, with Python's integers: sum over a group of (q_x - z_x) (q_w - z_w)."""
    size = len(w_OI[0]) // len(zw_OG[0])
    return [
        [
            [
                sum(
                    (row_x[i] - zx) * (row_w[i] - zw)
                    for i in range(group * size, (group + 1) * size)
                )
                for group, zw in enumerate(row_zw)
            ]
            for row_w, row_zw in zip(w_OI, zw_OG, strict=True)
        ]
        for row_x, zx in zip(x_TI, zx_T, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    extreme=st.booleans(),
    groups=st.sampled_from([1, 2, 6]),
)
def test_the_four_terms_are_the_product_of_the_differences(seed, extreme, groups) -> None:
    rng = np.random.default_rng(seed)

    def codes(*shape: int) -> torch.Tensor:
        values = rng.choice([-128, 127], shape) if extreme else rng.integers(-128, 128, shape)
        return torch.from_numpy(values.astype(np.int8))

    x_TI, zx_T, w_OI, zw_OG = codes(3, 12), codes(3), codes(4, 12), codes(4, groups)
    terms = four_terms(x_TI, zx_T, w_OI, zw_OG)
    expected = exact_accumulators(x_TI.tolist(), zx_T.tolist(), w_OI.tolist(), zw_OG.tolist())
    assert terms.accumulators().dtype == torch.int32
    assert terms.accumulators().tolist() == expected
    plain = exact_accumulators(
        x_TI.tolist(), [0] * 3, w_OI.tolist(), [[0] * groups for _ in range(4)]
    )
    assert terms.products_TOG.tolist() == plain


def test_the_longest_group_still_fits_32_bits() -> None:
    longest = ((1 << 31) - 1) // 255**2
    x_TI = torch.full((1, longest), 127, dtype=torch.int8)
    w_OI = torch.full((1, longest), -128, dtype=torch.int8)
    terms = four_terms(x_TI, torch.tensor([-128]), w_OI, torch.tensor([[127]]))
    assert terms.accumulators().tolist() == [[[-(255**2) * longest]]]
    more = torch.zeros(1, longest + 1, dtype=torch.int8)
    with pytest.raises(UnsupportedError, match="32 bits"):
        four_terms(more, torch.tensor([0]), more, torch.tensor([[0]]))
    in_groups = four_terms(more, torch.tensor([0]), more, torch.zeros(1, longest + 1))
    assert in_groups.accumulators().shape == (1, 1, longest + 1)


@pytest.mark.parametrize("name", ["int8-asym", "int4-g32-asym", "int4-g64", "int2-g32-asym"])
def test_codes_with_scales_give_the_product_of_the_values(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    weight_OI = torch.randn(6, 128, generator=generator, dtype=torch.float64) + 0.3
    x_TI = torch.randn(5, 128, generator=generator, dtype=torch.float64) - 0.2
    values_OGC = grouped(weight_OI, FORMATS[name].group_size)
    grid = fit_grid(values_OGC, FORMATS[name], "fp32")
    codes_OGC = grid.codes(values_OGC)
    x = round_activations(x_TI, ActivationGrid(symmetric=False))
    terms = four_terms(x.codes, x.zeros.reshape(-1), codes_OGC.reshape(6, 128), grid.zeros_OG)
    ours = scaled_product(terms.accumulators(), x.scales.reshape(-1), grid.scales_OG)
    expected = x.values @ grid.values(codes_OGC).reshape(6, 128).T
    np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-13)


@given(st.floats(2.0**-40, 2.0**29))
@example(2.0**-32)
@example(4.216542907840578e-12)
def test_a_ratio_is_kept_to_31_bits(ratio: float) -> None:
    """Below 2^-32 to those that the largest shift leaves it."""
    multiplier, shift = fixed_point(ratio)
    assert 0 < multiplier < 1 << 31
    assert multiplier >= 1 << 30 or shift == 62
    error = abs(Fraction(multiplier, 2**shift) - Fraction(ratio))
    assert error <= (Fraction(ratio) / 2**31 if shift < 62 else Fraction(1, 2**63))


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf, math.nan, 2.0**30])
def test_a_ratio_beyond_the_shifts_is_refused(ratio: float) -> None:
    with pytest.raises(UnsupportedError, match="too far apart"):
        fixed_point(ratio)


@settings(max_examples=200)
@given(
    accumulator=st.integers(-(2**31) - 2**30, 2**31 + 2**30),
    multiplier=st.integers(1, 2**31 - 1),
    shift=st.integers(1, 62),
)
def test_the_shift_rounds_exactly(accumulator: int, multiplier: int, shift: int) -> None:
    ours = requantized(
        torch.tensor([[accumulator]]), torch.tensor([multiplier]), torch.tensor([shift])
    )
    assert int(ours) == exact_round(Fraction(accumulator * multiplier, 2**shift))


def exact_round(x: Fraction) -> int:
    """To the nearest whole number, halves upwards."""
    return math.floor(x + Fraction(1, 2))


def exact_layer(layer: IntegerLayer, x_TI: list[list[int]]) -> list[list[int]]:
    """`IntegerLayer.run` with Python's integers and fractions."""
    zeros = [[zero] for zero in layer.w_zeros_O.tolist()]
    sums = exact_accumulators(x_TI, [layer.x_zero] * len(x_TI), layer.w_codes_OI.tolist(), zeros)
    low = max(-128, layer.y_zero) if layer.relu else -128
    rows = []
    for row in sums:
        codes = []
        for o, (accumulator,) in enumerate(row):
            scaled = Fraction(
                (accumulator + int(layer.bias_O[o])) * int(layer.multipliers_O[o]),
                2 ** int(layer.shifts_O[o]),
            )
            codes.append(min(max(exact_round(scaled) + layer.y_zero, low), 127))
        rows.append(codes)
    return rows


def random_chain(seed: int, symmetric: bool) -> tuple[list[IntegerLayer], torch.Tensor, float]:
    """Four layers calibrated on their own float inputs, their input's codes, and the largest
    error of the chain in steps of its output."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [24, 40, 16, 32, 12]
    x_TI = torch.randn(7, sizes[0], generator=generator, dtype=torch.float64)
    spec = FORMATS["int8" if symmetric else "int8-asym"]
    layers, static = [], range_of(x_TI)
    first = round_activations(x_TI, ASYMMETRIC, static)
    for depth, (columns, rows) in enumerate(itertools.pairwise(sizes)):
        weight_OI = torch.randn(rows, columns, generator=generator, dtype=torch.float64) + 0.1
        bias_O = torch.randn(rows, generator=generator, dtype=torch.float64)
        grid = fit_grid(weight_OI[:, None], spec, "fp32")
        relu = depth < 3
        y_TO = x_TI @ weight_OI.T + bias_O
        x_TI = y_TO.clamp(min=0) if relu else y_TO
        output = range_of(x_TI)
        codes_OI = grid.codes(weight_OI[:, None])[:, 0]
        layer = make_integer_layer(
            codes_OI, grid.scales_OG[:, 0], grid.zeros_OG[:, 0], bias_O, static, output, relu=relu
        )
        layers.append(layer)
        static = output
    codes = run_chain(layers, first.codes.to(torch.int8))
    values = (codes.double() - static.zero) * static.scale
    return layers, first.codes.to(torch.int8), float((values - x_TI).abs().max() / static.scale)


def range_of(x: torch.Tensor) -> StaticScale:
    return scale_of_range(min(0.0, float(x.min())), max(0.0, float(x.max())), ASYMMETRIC)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_chain_is_bit_for_bit_that_of_fractions(seed: int, symmetric: bool) -> None:
    layers, codes_TI, error_steps = random_chain(seed, symmetric)
    expected = codes_TI.tolist()
    for layer in layers:
        expected = exact_layer(layer, expected)
    assert run_chain(layers, codes_TI).tolist() == expected
    assert len({code for row in expected for code in row}) > 20
    # Each layer adds up to about a step of rounding; the four together stay within a few.
    assert error_steps < 8


def test_a_bias_beyond_its_scales_is_refused() -> None:
    one = torch.ones(1, 4)
    static = StaticScale(scale=1e-6)
    with pytest.raises(UnsupportedError, match="bias"):
        make_integer_layer(
            one, torch.tensor([1e-6]), torch.zeros(1), torch.tensor([1e3]), static, static
        )

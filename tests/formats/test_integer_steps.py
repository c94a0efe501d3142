"""Steps are found where they are, exactly, and nowhere else."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.formats.grid_weight import GridWeight
from paredown.formats.integer_steps import MOST_STEPS, integer_steps, steps_of
from paredown.spec.weight import WeightSpec

STEPS = st.lists(st.integers(1, MOST_STEPS), min_size=1, max_size=6)
# Products with steps of up to 5 bits stay exact in float32.
SHORT = st.builds(
    lambda whole, exponent: float(np.ldexp(whole, exponent)),
    st.integers(1, 2**19 - 1),
    st.integers(-168, 100),
).filter(lambda value: float(np.float32(value)) == value)
POSITIVE = st.floats(min_value=2.0**-149, max_value=2.0**127, width=32)


def multiples(row_scales: list[float], steps: list[list[int]]) -> np.ndarray:
    scales_OG = np.array(row_scales)[:, None] * np.array(steps)
    assert (scales_OG.astype(np.float32) == scales_OG).all()
    return scales_OG.astype(np.float32)


def reference(scales: list[float]) -> tuple[Fraction, list[int]] | None:
    """Of one row: the smallest scale over each step that it may have, the first one that fits."""
    for step in range(1, MOST_STEPS + 1):
        row_scale = Fraction(min(scales)) / step
        ratios = [Fraction(scale) / row_scale for scale in scales]
        if all(ratio.denominator == 1 and ratio <= MOST_STEPS for ratio in ratios):
            return row_scale, [int(ratio) for ratio in ratios]
    return None


@settings(max_examples=150, deadline=None)
@given(data=st.data(), num_groups=st.integers(1, 6), row_scales=st.lists(SHORT, min_size=1))
def test_products_of_steps_are_found(data, num_groups: int, row_scales: list[float]) -> None:
    own = st.lists(st.integers(1, MOST_STEPS), min_size=num_groups, max_size=num_groups)
    scales_OG = multiples(row_scales, [data.draw(own) for _ in row_scales])
    found = steps_of(scales_OG)
    assert found is not None
    scales_O, steps_OG = found
    assert scales_O.dtype == np.float32
    assert steps_OG.dtype == np.uint8
    for row, (scale, steps) in enumerate(zip(scales_O, steps_OG.tolist(), strict=True)):
        assert (Fraction(float(scale)), steps) == reference(scales_OG[row].tolist())


@settings(max_examples=150, deadline=None)
@given(scales=st.lists(st.one_of(SHORT, POSITIVE), min_size=1, max_size=5))
def test_any_row_is_judged_as_by_fractions(scales: list[float]) -> None:
    expected = reference(scales)
    found = steps_of(np.array([scales], np.float32))
    assert (found is None) == (expected is None)
    if found is not None:
        assert (Fraction(float(found[0][0])), found[1][0].tolist()) == expected


@settings(max_examples=100, deadline=None)
@given(row_scale=SHORT, steps=STEPS, place=st.integers(0, 5), up=st.booleans())
def test_the_next_float_is_no_multiple(row_scale, steps, place: int, up: bool) -> None:
    """One group of several that is off by its last bit is not taken for its neighbour."""
    scales_OG = multiples([row_scale], [[*steps, 1, 7]])
    place %= scales_OG.size
    moved = np.nextafter(scales_OG[0, place], np.float32(np.inf if up else 0))
    scales_OG[0, place] = moved
    expected = reference(scales_OG[0].tolist()) if moved > 0 else None
    assert (steps_of(scales_OG) is None) == (expected is None)


def test_one_row_without_steps_is_enough() -> None:
    good = multiples([0.25, 0.375], [[3, 5], [16, 1]])
    assert steps_of(good) is not None
    assert steps_of(np.vstack([good, np.float32([[1, 17]])])) is None


@pytest.mark.parametrize("bad", [0.0, -0.5, float("nan"), float("inf")])
def test_scales_that_are_none_have_no_steps(bad: float) -> None:
    assert steps_of(np.array([[0.5, bad]], np.float32)) is None


def int4_weight(scales_OG: np.ndarray, zeros_OG: np.ndarray | None = None) -> GridWeight:
    num_rows, num_groups = scales_OG.shape
    codes_OI = np.tile(np.arange(16, dtype=np.uint8), (num_rows, 2 * num_groups))
    spec = WeightSpec(dtype="int4", group_size=32, symmetric=zeros_OG is None)
    zeros = None if zeros_OG is None else zeros_OG.astype(np.uint8)
    return GridWeight(
        spec=spec, values_OI=codes_OI, scales_OG=scales_OG.astype(np.float32), zero_points_OG=zeros
    )


@settings(max_examples=200, deadline=None)
@given(data=st.data(), zeros=st.lists(st.integers(0, 15), min_size=2, max_size=6))
def test_zero_points_bound_the_steps(data, zeros: list[int]) -> None:
    """A weight has steps exactly where all its 16 codes times them have 8 bits, and then its values
    are those of these integers, bit for bit."""
    steps = data.draw(st.lists(st.integers(1, 16), min_size=len(zeros), max_size=len(zeros)))
    weight = int4_weight(multiples([0.375], [steps]), np.array([zeros]))
    codes_GC = np.arange(16) - np.array(zeros)[:, None]
    unit = np.gcd.reduce(steps)
    integers_GC = codes_GC * np.array(steps)[:, None] // unit
    found = integer_steps(weight)
    assert (found is not None) == bool((np.abs(integers_GC + 0.5) < 128).all())
    if found is not None:
        assert found[1].tolist() == [[step // unit for step in steps]]
        row = np.repeat(integers_GC[:, None], 2, axis=1).reshape(-1).astype(np.float32)
        assert weight.at_work().tobytes() == (row * found[0][0]).tobytes()


def test_other_weights_have_none() -> None:
    weight = int4_weight(multiples([0.5], [[3, 5]]))
    assert integer_steps(weight) is not None
    assert integer_steps(replace(weight, spec=WeightSpec(dtype="int3", group_size=32))) is None
    assert integer_steps(int4_weight(np.array([[0.5]]))) is None
    assert integer_steps(int4_weight(np.array([[0.5, 0.7]]))) is None

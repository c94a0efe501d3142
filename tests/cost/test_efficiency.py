"""Shares of roofs: found again where they were made by known ones, and never above a roof."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.cost.efficiency import (
    EFFICIENCIES,
    Efficiency,
    MeasuredProduct,
    fit_efficiency,
)
from paredown.cost.machines import MACHINES

ROOFS = MACHINES["h100"]
SIZES = [1, 16, 256, 4096]


def product(num_tokens: int, size: int, truth: Efficiency) -> MeasuredProduct:
    flops, num_bytes = 2.0 * num_tokens * size * size, 2.0 * (size * size + 2 * num_tokens * size)
    made = MeasuredProduct(flops=flops, bytes=num_bytes, seconds=1.0)
    return MeasuredProduct(flops=flops, bytes=num_bytes, seconds=made.predicted_s(ROOFS, truth))


@given(st.floats(1e-6, 2e-5), st.floats(0.3, 0.95), st.floats(0.3, 0.95))
@settings(max_examples=30, deadline=None)
def test_shares_are_found_again(call_s: float, arithmetic: float, memory: float) -> None:
    truth = Efficiency(call_s=call_s, arithmetic=arithmetic, memory=memory, source="truth")
    products = [product(n, size, truth) for n, size in itertools.product(SIZES, (512, 4096, 8192))]
    found = fit_efficiency(products, ROOFS, "these")
    assert found.call_s == pytest.approx(call_s, rel=1e-3)
    assert found.arithmetic == pytest.approx(arithmetic, rel=1e-3)
    assert found.memory == pytest.approx(memory, rel=1e-3)
    assert found.source == "these"
    for one in products:
        assert one.predicted_s(ROOFS, found) == pytest.approx(one.seconds, rel=1e-3)


@given(st.floats(0, 1), st.floats(0, 1), st.sampled_from(sorted(EFFICIENCIES)))
def test_no_operation_beats_its_roofs_or_comes_for_nothing(
    arithmetic_s: float, memory_s: float, key: str
) -> None:
    efficiency = EFFICIENCIES[key]
    seconds = efficiency.seconds(arithmetic_s, memory_s)
    assert seconds >= max(arithmetic_s, memory_s, efficiency.call_s)
    assert efficiency.seconds(2 * arithmetic_s, memory_s) >= seconds
    assert efficiency.seconds(arithmetic_s, 2 * memory_s) >= seconds


def test_best_is_the_roofline() -> None:
    one = MeasuredProduct(flops=989.4e12, bytes=3.35e12 / 2, seconds=9.0)
    assert one.best_s(ROOFS) == pytest.approx(1.0)
    other = MeasuredProduct(flops=989.4e12 / 4, bytes=3.35e12 / 2, seconds=9.0)
    assert other.best_s(ROOFS) == pytest.approx(0.5)


def test_what_takes_no_time_has_no_roof() -> None:
    """Products whose time does not depend on their arithmetic."""
    products = [MeasuredProduct(flops=1e9 * n, bytes=1e9, seconds=1e-3) for n in (1.0, 2.0, 3.0)]
    assert fit_efficiency(products, ROOFS, "flat").arithmetic == float("inf")

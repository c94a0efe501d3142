"""Budgets over layers: exact, within bounds, and no other shares are better."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.compress.prune.budget import LossCurve, common_share, shares_for_total
from paredown.errors import ConfigError


@st.composite
def convex_curves(draw: st.DrawFn, num_weights: st.SearchStrategy[int]) -> dict[str, LossCurve]:
    """Up to three layers whose losses grow faster and faster."""
    found = {}
    for layer in range(draw(st.integers(1, 3))):
        count = draw(num_weights)
        slopes = sorted(draw(st.lists(st.floats(0, 10), min_size=count, max_size=count)))
        sums = [0.0, *itertools.accumulate(slopes)][:-1]
        shares = tuple(number / count for number in range(count))
        found[f"layer {layer}"] = LossCurve(num_weights=count, shares=shares, losses=tuple(sums))
    return found


@st.composite
def any_curves(draw: st.DrawFn) -> dict[str, LossCurve]:
    """Measured curves: few points, neither convex nor rising."""
    found = {}
    for layer in range(draw(st.integers(1, 4))):
        shares = sorted(draw(st.sets(st.floats(0.01, 0.99), min_size=1, max_size=5)))
        losses = draw(st.lists(st.floats(-1, 10), min_size=len(shares), max_size=len(shares)))
        found[f"layer {layer}"] = LossCurve(
            num_weights=draw(st.integers(100, 10_000)),
            shares=(0.0, *shares),
            losses=(0.0, *losses),
        )
    return found


def loss_of(curve: LossCurve, count: int) -> float:
    """The hull's loss; on a convex curve with a point for every count, the curve's own."""
    points = curve.points(1.0)
    for low, high in itertools.pairwise(points):
        if count <= high[0]:
            return low[1] + (high[1] - low[1]) * (count - low[0]) / (high[0] - low[0])
    assert count == points[-1][0]
    return points[-1][1]


def counts_of(shares: dict, curves: dict[str, LossCurve]) -> dict[str, int]:
    return {name: shares[name].num_removed(curve.num_weights) for name, curve in curves.items()}


def all_counts(curves: dict[str, LossCurve]) -> list[dict[str, int]]:
    ranges = [range(len(curve.shares)) for curve in curves.values()]
    return [dict(zip(curves, counts, strict=True)) for counts in itertools.product(*ranges)]


def total_loss(curves: dict[str, LossCurve], counts: dict[str, int]) -> float:
    return sum(curves[name].losses[count] for name, count in counts.items())


@settings(max_examples=60, deadline=None)
@given(curves=convex_curves(st.integers(1, 6)), share=st.floats(0, 0.99))
def test_a_total_share_is_spent_exactly_and_no_other_way_is_better(
    curves: dict[str, LossCurve], share: float
) -> None:
    total = sum(curve.num_weights for curve in curves.values())
    wanted = round(share * total)
    fitting = [one for one in all_counts(curves) if sum(one.values()) == wanted]
    if not fitting:
        with pytest.raises(ConfigError, match="total share"):
            shares_for_total(curves, share, most_share=0.999)
        return
    counts = counts_of(shares_for_total(curves, share, most_share=0.999), curves)
    assert sum(counts.values()) == wanted
    best = min(total_loss(curves, one) for one in fitting)
    assert total_loss(curves, counts) == pytest.approx(best, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(curves=any_curves(), share=st.floats(0, 0.9), most_share=st.floats(0.1, 0.95))
def test_any_curve_gives_shares_within_bounds(
    curves: dict[str, LossCurve], share: float, most_share: float
) -> None:
    total = sum(curve.num_weights for curve in curves.values())
    try:
        counts = counts_of(shares_for_total(curves, share, most_share), curves)
    except ConfigError:
        limits = [
            curve.num_weights * min(most_share, curve.shares[-1]) for curve in curves.values()
        ]
        assert round(share * total) > sum(math.floor(limit) for limit in limits)
        return
    assert sum(counts.values()) == round(share * total)
    for name, curve in curves.items():
        assert counts[name] <= most_share * curve.num_weights


@settings(max_examples=60, deadline=None)
@given(
    curves=convex_curves(st.integers(1, 6)),
    max_loss=st.floats(0, 40),
    most_share=st.floats(0.05, 0.95),
)
def test_one_share_is_the_largest_within_the_loss(
    curves: dict[str, LossCurve], max_loss: float, most_share: float
) -> None:
    found = common_share(list(curves.values()), max_loss, most_share).share

    def loss(share: float) -> float:
        return sum(curve.loss_at(share) for curve in curves.values())

    assert 0 <= found <= most_share
    assert loss(found) <= max_loss + 1e-9
    assert found == most_share or loss(min(most_share, found + 1e-6)) > max_loss - 1e-9

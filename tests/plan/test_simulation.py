"""What is said of a simulation: quantiles, limits and goodput against counts over its requests."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.plan.simulation import MET_SHARE, Distribution, LatencyLimits, Lateness, Simulation

times = st.floats(0, 4).map(lambda value: round(value, 1))
requests = st.lists(st.tuples(times, times, st.one_of(st.just(-1.0), times)), max_size=60)
optional = st.one_of(st.none(), st.floats(0.1, 4).map(lambda value: round(value, 1)))
limits = st.builds(LatencyLimits, e2e_s=optional, ttft_s=optional, tpot_s=optional)


def simulation(found: list[tuple[float, float, float]], num_refused: int = 0) -> Simulation:
    result = Simulation(num_refused=num_refused)
    for e2e_s, ttft_s, tpot_s in found:
        result.e2es_s.append(e2e_s)
        result.ttfts_s.append(ttft_s)
        result.tpots_s.append(tpot_s)
    return result


def test_quantiles() -> None:
    values = Distribution([0.3, 0.1, 0.2, 0.4])
    assert [values.quantile(share) for share in (0.25, 0.5, 0.51, 0.95, 1.0)] == [
        0.1,
        0.2,
        0.3,
        0.4,
        0.4,
    ]
    assert values.share_within(0.25) == 0.5
    assert Distribution([]).quantile(0.5) == 0


@given(st.lists(times, min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_quantile_is_the_smallest_value_that_so_many_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = Distribution(values)
    quantile = found.quantile(share)
    assert quantile in values
    assert sum(one <= quantile for one in values) >= share * len(values) - 1e-9
    assert sum(one < quantile for one in values) < share * len(values) + 1e-9
    assert found.share_within(quantile) == sum(one <= quantile for one in values) / len(values)
    assert found.mean == pytest.approx(sum(values) / len(values))
    assert found.as_json()["p50_s"] == found.quantile(0.5)


def test_limits_hold_for_the_share_asked_for() -> None:
    found = simulation([(1.0 if number < 95 else 9.0, 0.1, -1.0) for number in range(100)])
    assert found.meets(LatencyLimits(e2e_s=1.0))
    assert found.meets(LatencyLimits(e2e_s=1.0, ttft_s=0.1, tpot_s=1e-3))
    assert not found.meets(LatencyLimits(e2e_s=1.0), share=0.96)
    assert not found.meets(LatencyLimits(ttft_s=0.09))
    found.num_refused = 1
    assert not found.meets(LatencyLimits(e2e_s=1.0))


@given(requests, limits, st.integers(0, 3))
def test_limits_are_met_where_late_and_refused_ones_are_few(
    found: list[tuple[float, float, float]], limits: LatencyLimits, num_refused: int
) -> None:
    """Each limit by itself, of the requests that have such a time; who was refused keeps none."""
    all_limits = (limits.e2e_s, limits.ttft_s, limits.tpot_s)
    is_met = not num_refused or bool(found)
    for index, limit in enumerate(all_limits if found else ()):
        values = [one[index] for one in found if one[index] >= 0]
        asked = len(values) * (1 + num_refused / len(found))
        num_kept = sum(limit is None or value <= limit for value in values)
        is_met &= num_kept >= MET_SHARE * asked - 1e-9
    assert simulation(found, num_refused).meets(limits) == is_met


@given(requests, limits, st.integers(0, 3), st.integers(0, 3))
def test_goodput_is_the_share_of_requests_that_keep_all_limits(
    found: list[tuple[float, float, float]],
    limits: LatencyLimits,
    num_refused: int,
    num_too_long: int,
) -> None:
    result = simulation(found, num_refused)
    result.num_too_long = num_too_long
    num_good = sum(
        all(
            limit is None or value <= limit
            for value, limit in zip(one, (limits.e2e_s, limits.ttft_s, limits.tpot_s), strict=True)
        )
        for one in found
    )
    total = len(found) + num_refused + num_too_long
    assert result.goodput(limits) == (num_good / total if total else 1.0)
    # Who keeps all limits keeps each: so many good ones are enough.
    if total and num_good >= MET_SHARE * total and all(tpot >= 0 for _, _, tpot in found):
        assert result.meets(limits)


@given(requests, limits)
def test_a_run_is_hopeless_only_where_the_limits_are_not_met(
    found: list[tuple[float, float, float]], limits: LatencyLimits
) -> None:
    lateness = Lateness(limits, len(found))
    for one in found:
        was_hopeless = lateness.is_hopeless
        lateness.note(*one)
        assert lateness.is_hopeless or not was_hopeless
    if all(tpot >= 0 for _, _, tpot in found):
        assert not (lateness.is_hopeless and simulation(found).meets(limits))
    num_late = sum(limits.ttft_s is not None and ttft > limits.ttft_s for _, ttft, _ in found)
    if num_late > math.ceil(0.05 * len(found)):
        assert lateness.is_hopeless


def test_one_that_was_stopped_meets_nothing() -> None:
    result = simulation([(0.1, 0.1, 0.1)] * 10)
    assert result.meets(LatencyLimits())
    result.is_hopeless = True
    assert not result.meets(LatencyLimits())


def test_shares_are_of_all_machines_and_of_what_was_asked() -> None:
    result = Simulation(
        busy_s=30.0,
        duration_s=20.0,
        num_replicas=2,
        num_hit_tokens=30,
        num_queried_tokens=120,
        num_requests=5,
    )
    assert result.utilization == 0.75
    assert result.prefix_hit_rate == 0.25
    assert (Simulation().utilization, Simulation().prefix_hit_rate) == (0.0, 0.0)
    summary = json.loads(json.dumps(result.summary(LatencyLimits(e2e_s=1.0))))
    assert (summary["num_requests"], summary["utilization"], summary["goodput"]) == (5, 0.75, 1.0)
    assert result.summary()["goodput"] is None


@pytest.mark.parametrize("name", ["e2e_s", "ttft_s", "tpot_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 2e6])
def test_senseless_limits(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match="is out of range"):
        LatencyLimits(**{name: value})

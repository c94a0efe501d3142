"""Figures of a load: by hand, by their units, and the same for one run as for many like it."""

import statistics
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.loads import load_run, served
from paredown.evaluate.load.run_load import LoadRun, Moment
from paredown.evaluate.load.slo import SLO
from paredown.evaluate.load.summary import (
    LATENCIES,
    LoadSummary,
    Percentiles,
    latencies,
    step_bytes,
    summarize,
)

BANDWIDTH, PEAK = 1e9, 1e12
VALUES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50)
# What the unit of time is a factor of, by its power.
IN_SECONDS = {"duration_s": 1, **dict.fromkeys(LATENCIES, 1)}
PER_SECOND = ("requests_per_s", "input_tokens_per_s", "output_tokens_per_s", "goodput_per_s")


def summary(*runs: LoadRun, slo: SLO | None = None) -> LoadSummary:
    return summarize(runs, bandwidth_bytes_per_s=BANDWIDTH, peak_per_s=PEAK, slo=slo)


def slower(run: LoadRun, factor: float) -> LoadRun:
    """The same in a film that is run so many times slower."""
    return replace(
        run,
        duration_s=factor * run.duration_s,
        model_s=factor * run.model_s,
        served=[
            replace(
                one,
                arrival_s=factor * one.arrival_s,
                first_step_s=factor * one.first_step_s,
                token_times=[factor * time for time in one.token_times],
            )
            for one in run.served
        ],
    )


RUN = load_run(served(0.0, 1.0, 2.0, 4.0), served(1.0, 3.0, 3.5), served(2.0, failure="broken"))


@pytest.mark.parametrize("factor", [0.25, 8.0])
def test_figures_have_the_units_of_their_names(factor: float) -> None:
    limit = SLO(ttft_s=1.5)
    plain = summary(RUN, slo=limit)
    found = summary(slower(RUN, factor), slo=SLO(ttft_s=1.5 * factor))
    for name in IN_SECONDS:
        for before, after in zip(numbers(plain, name), numbers(found, name), strict=True):
            assert after == pytest.approx(factor * before)
    for name in (*PER_SECOND, "mbu", "mfu"):
        assert getattr(found, name) == pytest.approx(getattr(plain, name) / factor)
    rest = {one.name for one in fields(LoadSummary)} - {*IN_SECONDS, *PER_SECOND, "mbu", "mfu"}
    assert {name: getattr(found, name) for name in rest} == {
        name: getattr(plain, name) for name in rest
    }


def numbers(found: LoadSummary, name: str) -> list[float]:
    value = getattr(found, name)
    if isinstance(value, Percentiles):
        return [value.mean, value.p50, value.p95, value.p99, value.max]
    return [value]


@pytest.mark.parametrize("num_runs", [2, 5])
def test_many_runs_alike_have_the_figures_of_one(num_runs: int) -> None:
    """But for what is counted over all of them."""
    one, many = summary(RUN, slo=SLO(e2e_s=3.0)), summary(*[RUN] * num_runs, slo=SLO(e2e_s=3.0))
    counted = {
        "num_runs": num_runs,
        "num_requests": 3 * num_runs,
        "num_failed": num_runs,
        "num_preemptions": num_runs,
    }
    for field in fields(LoadSummary):
        expected = counted.get(field.name, getattr(one, field.name))
        if field.name in LATENCIES:
            assert numbers(many, field.name)[::4] == pytest.approx(numbers(one, field.name)[::4])
        else:
            assert getattr(many, field.name) == pytest.approx(expected)
    assert many.spread == 0


def test_the_spread_is_that_of_the_middle_half() -> None:
    """Rates of 1 to 5 requests of one token in 10 s."""
    runs = [load_run(*[served(0.0, 1.0)] * number) for number in (3, 1, 5, 2, 4)]
    assert summary(*runs).spread == pytest.approx((0.4 - 0.2) / 0.3)
    assert summary(runs[0]).spread == 0
    most = load_run(
        served(0.0, 1.0), moments=[Moment(1.0, 9, 1, 0.1), Moment(2.0, 0, 7, 0.9)], num_steps=1
    )
    found = summary(most, runs[0])
    assert (found.most_waiting, found.most_running, found.most_kv_share) == (9, 7, 0.9)
    assert found.tokens_per_step == (11 + 33) / 5


def test_latencies_are_of_those_who_were_answered() -> None:
    assert latencies([RUN], "ttft_s") == [1.0, 2.0]
    assert latencies([RUN, RUN], "itl_s") == [1.0, 2.0, 0.5] * 2
    assert latencies([RUN], "queue_s") == [0.5, 0.5]
    single = load_run(served(0.0, 1.0))
    assert latencies([single], "tpot_s") == []
    assert summary(single).tpot_s is None
    assert summary(single).goodput_share is None


@given(VALUES, st.floats(0.01, 100))
def test_percentiles_are_in_their_order_and_in_the_unit_of_the_values(
    values: list[float], factor: float
) -> None:
    found = Percentiles.of(values)
    assert found is not None
    tolerance = 1 + 1e-9
    assert min(values) <= found.p50 * tolerance
    assert found.p50 <= found.p95 * tolerance
    assert found.p95 <= found.p99 * tolerance
    assert found.p99 <= found.max * tolerance
    assert found.mean == pytest.approx(sum(values) / len(values))
    scaled = Percentiles.of([factor * one for one in values])
    assert scaled is not None
    assert scaled.p95 == pytest.approx(factor * found.p95)


def test_the_figures_of_a_load() -> None:
    requests = (served(0.0, 1.0, 2.0), served(1.0, 3.0, num_cached_tokens=5))
    failed = served(2.0, failure="the model failed")
    run = load_run(*requests, failed, num_proposed=8, num_accepted=2)
    slower = load_run(*requests, failed, duration_s=20.0)
    found = summarize(
        [run, slower], bandwidth_bytes_per_s=BANDWIDTH, peak_per_s=PEAK, slo=SLO(ttft_s=1.5)
    )
    assert (found.num_requests, found.num_failed) == (6, 2)
    assert found.requests_per_s == pytest.approx(statistics.median((0.3, 0.15)))
    assert found.input_tokens_per_s == pytest.approx(statistics.median((3.0, 1.5)))
    assert found.output_tokens_per_s == pytest.approx(statistics.median((0.3, 0.15)))
    assert found.ttft_s.p50 == 1.5
    assert found.tpot_s.max == found.itl_s.max == 1.0
    assert found.mbu == pytest.approx(4e9 / 10 / BANDWIDTH)
    assert found.mfu == pytest.approx(2e12 / 10 / PEAK)
    assert found.model_share == pytest.approx(10 / 30)
    assert found.cached_share == pytest.approx(10 / 60)
    assert (found.most_waiting, found.most_running, found.most_kv_share) == (2, 4, 0.5)
    assert (found.num_preemptions, found.num_proposed, found.num_accepted) == (2, 8, 2)
    assert found.goodput_share == pytest.approx(2 / 6), "the one that failed does not count"
    assert found.goodput_per_s == pytest.approx(statistics.median((0.1, 0.05)))
    assert step_bytes([run, slower]) == 4_000_000_000 // 8


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_lie_between_neighbours(values: list[float]) -> None:
    found, ordered = Percentiles.of(values), sorted(values)
    for share, value in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99)):
        place = share * (len(ordered) - 1)
        low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
        assert value == pytest.approx(low + (place - int(place)) * (high - low))
    assert found.max == ordered[-1]
    assert Percentiles.of([]) is None

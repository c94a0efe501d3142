"""Requests in time that passes in steps: who gets what when, to the digit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.loads import CountedExecutor, served
from fakes.toy_executor import ToyTokenizer
from fakes.virtual_clock import VirtualClock
from paredown.engine.engine import Engine
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.evaluate.load.arrival import Arrival
from paredown.evaluate.load.meter import Meter
from paredown.evaluate.load.run_load import LoadRun, run_load


def arrival(at_s: float, num_input: int = 5, num_output: int = 3) -> Arrival:
    return Arrival(at_s=at_s, num_input_tokens=num_input, num_output_tokens=num_output)


def run(arrivals: list[Arrival], seed: tuple[int, int] = (0, 0), **config: int) -> LoadRun:
    """Each step takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        VirtualClock(patch)
        meter = Meter(CountedExecutor(num_pages=64, delay_s=1.0))
        engine = Engine(meter.executor, ToyTokenizer(), ScheduleConfig(max_waiting=100, **config))
        return run_load(engine, meter, arrivals, seed=seed)


def test_a_request_alone_gets_a_token_in_each_step() -> None:
    found = run([arrival(0.0), arrival(10.5)])
    first, second = found.served
    assert first.token_times == [1, 2, 3]
    assert (first.ttft_s, first.tpot_s, first.e2e_s, first.queue_s) == (1, 1, 3, 0)
    assert second.token_times == [11.5, 12.5, 13.5]
    assert found.duration_s == 13.5
    assert found.model_s == found.num_steps == 6


def test_waiting_for_a_step_to_end_is_part_of_the_time() -> None:
    """One comes in the middle of the other's first step, and both decode together after it."""
    found = run([arrival(0.0), arrival(0.25)])
    late = found.served[1]
    assert late.token_times == [2, 3, 4]
    assert (late.queue_s, late.ttft_s) == (0.75, 1.75)
    assert found.num_steps == 4
    assert [one.num_running for one in found.moments] == [1, 2, 1, 0]
    assert [one.time_s for one in found.moments] == [1, 2, 3, 4]


def test_who_is_not_let_in_waits() -> None:
    found = run([arrival(0.0), arrival(0.0)], max_running=1)
    assert [one.token_times for one in found.served] == [[1, 2, 3], [4, 5, 6]]
    assert [one.queue_s for one in found.served] == [0, 3]
    assert [one.num_waiting for one in found.moments] == [1, 1, 1, 0, 0, 0]


def test_pages_are_held_as_long_as_requests_run() -> None:
    """16 tokens in a page: three pages of prompt, a fourth for the second token computed after."""
    found = run([arrival(0.0, 47, 4)], prefix_cache=0)
    assert [one.kv_share for one in found.moments] == [3 / 64, 3 / 64, 4 / 64, 0]


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 40), st.integers(1, 6)),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=30, deadline=None)
def test_everybody_gets_what_was_asked_for_and_not_before_it_was_asked(
    asked: list[tuple[int, int, int]],
) -> None:
    arrivals = [arrival(at / 4, *sizes) for at, *sizes in sorted(asked)]
    found = run(arrivals)
    assert found.num_steps == found.model_s == len(found.moments)
    for one, wanted in zip(found.served, arrivals, strict=True):
        assert one.arrival_s == wanted.at_s
        assert one.num_input_tokens == wanted.num_input_tokens
        assert one.num_tokens == len(one.token_times) == wanted.num_output_tokens
        assert one.arrival_s <= one.first_step_s <= one.token_times[0] - 1
        assert all(gap >= 1 for gap in one.itl_s)
        assert one.ttft_s + sum(one.itl_s) == pytest.approx(one.e2e_s)
    last = max(one.token_times[-1] for one in found.served)
    assert found.duration_s == found.moments[-1].time_s == last
    for moment in found.moments:
        open_now = [
            one for one in found.served if one.arrival_s < moment.time_s < one.token_times[-1]
        ]
        assert moment.num_waiting + moment.num_running <= len(open_now)
        assert 0 <= moment.kv_share <= 1
    assert found.num_proposed == found.num_accepted == found.num_preemptions == 0


def test_prompts_follow_from_the_seed() -> None:
    """Those of another round are others: nothing of them is in the prefix cache."""
    with pytest.MonkeyPatch.context() as patch:
        VirtualClock(patch)
        meter = Meter(CountedExecutor(num_pages=64, delay_s=1.0))
        engine = Engine(meter.executor, ToyTokenizer(), ScheduleConfig(max_waiting=9))
        wanted = [arrival(0.0, 33, 2)]
        found = [
            run_load(engine, meter, wanted, seed=seed).served[0].num_cached_tokens
            for seed in ((0, 0), (0, 1), (1, 0), (0, 0))
        ]
    assert found == [0, 0, 0, 32]


def test_the_latencies_of_a_request() -> None:
    one = served(1.0, 3.0, 4.0, 4.5, 7.5)
    assert (one.ttft_s, one.e2e_s, one.queue_s) == (2.0, 6.5, 0.5)
    assert one.itl_s == [1.0, 0.5, 3.0]
    assert one.tpot_s == pytest.approx(4.5 / 3)
    # Guesses that came true come together: gaps are what a reader sees, tokens are all counted.
    assert served(0.0, 1.0, 2.0, num_tokens=5).tpot_s == pytest.approx(0.25)
    assert served(0.0, 1.0).tpot_s is None

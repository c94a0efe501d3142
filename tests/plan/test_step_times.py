"""Seconds of simulated steps against loads that are summed up request by request."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.cost.step_cost import StepLoad
from paredown.engine.schedule.counted_request import CountedRequest
from paredown.engine.schedule.step_plan import Chunk
from paredown.plan.step_times import StepTimes
from references.plain_simulation import LinearCost


@dataclass
class RecordingCost:
    loads: list[StepLoad] = field(default_factory=list)

    def step_s(self, step: StepLoad) -> float:
        self.loads.append(step)
        return 1.0


class CurvedCost:
    """Grows faster than any line, as no machine does."""

    def step_s(self, step: StepLoad) -> float:
        return 1e-6 * step.kv_tokens_read**1.5


def chunk(start: int, size: int, num_prompt_tokens: int, num_generated: int) -> Chunk:
    """A request that has computed `start` tokens and computes `size` more."""
    request = CountedRequest(
        id=0, num_prompt_tokens=num_prompt_tokens, num_output_tokens=num_generated + 1
    )
    request.add_tokens(num_generated)
    request.num_computed_tokens = start
    return request, size


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    start, size = draw(st.integers(0, 60)), draw(st.integers(1, 40))
    num_left, num_generated = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    num_prompt_tokens = start + size + num_left - num_generated
    return chunk(start, size, num_prompt_tokens, num_generated)


def seen_by(position: int, window: int | None) -> range:
    return range(0 if window is None else max(0, position - window + 1), position + 1)


@given(st.lists(chunks(), min_size=1, max_size=4), st.one_of(st.none(), st.integers(1, 50)))
def test_a_step_is_the_sum_of_what_each_token_attends_to(
    found: list[Chunk], window: int | None
) -> None:
    cost = RecordingCost()
    windows = () if window is None else (window,)
    StepTimes(cost, windows).step_s(found, 0, 0)
    pairs = windowed_pairs = kv_tokens = windowed_kv_tokens = num_logits = num_first = 0
    for request, size in found:
        start = request.num_computed_tokens
        positions = range(start, start + size)
        pairs += sum(len(seen_by(one, None)) for one in positions)
        kv_tokens += len({key for one in positions for key in seen_by(one, None)})
        if window is not None:
            windowed_pairs += sum(len(seen_by(one, window)) for one in positions)
            windowed_kv_tokens += len({key for one in positions for key in seen_by(one, window)})
        is_last = start + size == request.num_tokens
        num_logits += is_last
        num_first += is_last and request.num_tokens == request.num_prompt_tokens
    assert cost.loads == [
        StepLoad(
            num_tokens=sum(size for _, size in found),
            num_logits=num_logits,
            num_requests=len(found),
            attention_pairs=pairs,
            kv_tokens_read=kv_tokens,
            windowed_pairs=(windowed_pairs,) * len(windows),
            windowed_kv_tokens_read=(windowed_kv_tokens,) * len(windows),
            num_first_tokens=num_first,
        )
    ]


def test_requests_that_decode_beside_chunks_are_added_to_them() -> None:
    cost = RecordingCost()
    times = StepTimes(cost)
    times.step_s([chunk(3, 5, 20, 0)], 0, 0)
    times.step_s([chunk(3, 5, 20, 0)], 4, 100)
    alone, beside = cost.loads
    assert beside.num_tokens - alone.num_tokens == 4
    assert beside.num_logits - alone.num_logits == 4
    assert beside.num_requests - alone.num_requests == 4
    assert beside.attention_pairs - alone.attention_pairs == 100
    assert beside.kv_tokens_read - alone.kv_tokens_read == 100
    assert beside.num_first_tokens == alone.num_first_tokens == 0


@given(st.integers(1, 40), st.integers(0, 5000))
def test_decode_steps_are_a_line_up_to_the_next_doubling(num_requests: int, more: int) -> None:
    """Each step adds a token to every request; the steps that are told are all the ones of the
    line, and each takes what the cost model says."""
    context = num_requests + more
    times, cost = StepTimes(LinearCost()), LinearCost()
    first_s, rise_s, num_steps = times.decode_steps(num_requests, context)
    last = context + (num_steps - 1) * num_requests
    assert last.bit_length() == context.bit_length() < (last + num_requests).bit_length()
    for index in {0, 1, num_steps - 1}:
        tokens = context + index * num_requests
        load = StepLoad(
            num_tokens=num_requests,
            num_logits=num_requests,
            num_requests=num_requests,
            attention_pairs=tokens,
            kv_tokens_read=tokens,
        )
        if index < num_steps:
            assert first_s + index * rise_s == cost.step_s(load)


def test_a_curve_is_met_at_each_doubling_and_not_far_from_it_between() -> None:
    times, cost = StepTimes(CurvedCost()), CurvedCost()
    for exponent in range(3, 14):
        for context, tolerance in ((1 << exponent, 1e-9), (3 << (exponent - 1), 0.05)):
            found, _, _ = times.decode_steps(4, context)
            load = StepLoad(
                num_tokens=4,
                num_logits=4,
                num_requests=4,
                attention_pairs=context,
                kv_tokens_read=context,
            )
            assert found == pytest.approx(cost.step_s(load), rel=tolerance)


def test_the_cost_model_is_asked_twice_for_a_line() -> None:
    cost = RecordingCost()
    times = StepTimes(cost)
    for context in range(512, 1024):
        times.decode_steps(8, context)
    assert [load.kv_tokens_read for load in cost.loads] == [512, 1024]
    times.decode_steps(9, 512)
    assert len(cost.loads) == 4
    assert math.isfinite(times.decode_steps(1, 1)[0])

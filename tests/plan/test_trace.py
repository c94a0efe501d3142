"""A trace at another rate and in part, and what its prompts share."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.traces import make_trace, traces
from paredown.errors import ConfigError
from paredown.plan.trace import Trace, open_trace
from paredown.spec.kv import PAGE_SIZE


def gaps(trace: Trace) -> list[float]:
    times = [one.at_s for one in trace.requests]
    return [b - a for a, b in itertools.pairwise(times)]


@given(traces(), st.floats(1e-3, 1e3))
def test_at_another_rate_the_same_requests_come_in_the_same_proportions(
    trace: Trace, rate: float
) -> None:
    found = trace.at_rate(rate)
    assert found.requests_per_s == pytest.approx(rate)
    assert len(found.requests) == len(trace.requests)
    for one, other in zip(found.requests, trace.requests, strict=True):
        assert one.num_input_tokens == other.num_input_tokens
        assert one.block_ids == other.block_ids
    factor = found.duration_s / trace.duration_s
    assert gaps(found) == pytest.approx([factor * gap for gap in gaps(trace)])
    assert found.requests[0].at_s == 0


@given(traces(), st.floats(0, 10), st.floats(0, 10))
def test_a_part_has_its_requests_from_0_s_on(trace: Trace, start_s: float, seconds: float) -> None:
    chosen = [one for one in trace.requests if start_s <= one.at_s < start_s + seconds]
    if len(chosen) < 2:
        with pytest.raises(ConfigError, match="too few requests"):
            trace.part(start_s=start_s, seconds=seconds)
        return
    found = trace.part(start_s=start_s, seconds=seconds)
    assert [one.block_ids for one in found.requests] == [one.block_ids for one in chosen]
    assert [one.at_s for one in found.requests] == [one.at_s - chosen[0].at_s for one in chosen]
    assert trace.part() == trace


@given(traces(max_requests=6))
def test_the_new_share_is_what_no_prompt_before_began_with(trace: Trace) -> None:
    """Token by token: what stands in a block that was seen is known."""
    seen: set[int] = set()
    num_new = num_tokens = 0
    for one in trace.requests:
        for token in range(one.num_input_tokens):
            num_new += one.block_ids[token // 512] not in seen
        num_tokens += one.num_input_tokens
        seen.update(one.block_ids)
    assert trace.new_share == pytest.approx(num_new / num_tokens)
    assert 0 < trace.new_share <= 1


def test_blocks_that_come_again_are_not_new() -> None:
    trace = make_trace(
        [(0.0, 1024, 1, (0, 1)), (1.0, 1024, 1, (0, 2)), (2.0, 600, 1, (0, 2)), (3.0, 512, 1, (5,))]
    )
    assert trace.new_share == (1024 + 512 + 0 + 512) / (1024 + 1024 + 600 + 512)
    assert trace.shares_prefixes
    assert make_trace([(0.0, 1024, 1, (0, 1))]).new_share == 1.0
    assert not make_trace([(0.0, 600, 1, ())]).shares_prefixes


def test_the_first_requests_come_when_they_came() -> None:
    trace = make_trace([(float(one), 10, 1, ()) for one in range(9)])
    assert trace.first(4).requests == trace.requests[:4]
    assert (trace.first(4).duration_s, trace.first(4).requests_per_s) == (3.0, 1.0)
    assert trace.first(20) == trace


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n5,64,2\n7.5,32,3\n")
    trace = open_trace(path)
    assert trace.name == "mine"
    assert (trace.duration_s, trace.requests_per_s) == (2.5, 0.4)
    assert trace.requests[1].num_input_tokens == 2 * PAGE_SIZE
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n5,64,2\n5,32,3\n")
    with pytest.raises(ConfigError, match="come at once"):
        open_trace(path)

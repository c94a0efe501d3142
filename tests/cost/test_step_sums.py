"""Sums over steps against the steps one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.specs import gated, silu_experts
from paredown.cost.machines import MACHINES
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import load_letters
from paredown.cost.operations import operations
from paredown.cost.step_cost import StepLoad, decode_load, prefill_load
from paredown.cost.step_sums import RoofTimes, StepSums

ROOFS, FORMATS = MACHINES["xeon-emr"], ModelFormats()
EXPERTS = {"num": 4, "num_per_token": 2, "size": 8, "is_normalized": True}
MODELS = {
    "gated": gated(),
    "window": gated(sliding_window=5),
    "experts": gated(experts=silu_experts(**EXPERTS)),
}


def sums_of(loads: list[StepLoad], seconds: float) -> StepSums:
    by_tokens: dict[int, int] = {}
    for one in loads:
        by_tokens[one.num_tokens] = by_tokens.get(one.num_tokens, 0) + 1
    windowed = zip(*(one.windowed_pairs for one in loads), strict=True)
    windowed_keys = zip(*(one.windowed_kv_tokens_read for one in loads), strict=True)
    return StepSums(
        seconds=seconds,
        steps_by_tokens=by_tokens,
        num_logits=sum(one.num_logits for one in loads),
        attention_pairs=sum(one.attention_pairs for one in loads),
        kv_tokens_read=sum(one.kv_tokens_read for one in loads),
        windowed_pairs=tuple(map(sum, windowed)),
        windowed_kv_tokens_read=tuple(map(sum, windowed_keys)),
    )


@pytest.mark.parametrize("name", MODELS)
@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.integers(1, 40), st.integers(1, 100)), min_size=1, max_size=8
    )
)
@settings(max_examples=15, deadline=None)
def test_traffic_and_arithmetic_of_many_steps_are_those_of_each(name: str, steps) -> None:
    spec = MODELS[name]
    loads = [
        decode_load(number, context, spec.windows)
        if is_decode
        else prefill_load(number, context, spec.windows)
        for is_decode, number, context in steps
    ]
    memory_s = arithmetic_s = 0.0
    for load in loads:
        for one in (op.at(load_letters(load, spec)) for op in operations(spec, FORMATS)):
            memory_s += one.bytes / ROOFS.bandwidth_bytes_per_s
            arithmetic_s += one.flops / ROOFS.peak(one.operation.unit)
    times = RoofTimes.of(spec, FORMATS, ROOFS)
    used = times.utilization(sums_of(loads, 2.0))
    assert used.memory == pytest.approx(memory_s / 2)
    # What is skipped for tokens without a row of logits is less than a layer.
    assert used.arithmetic <= arithmetic_s / 2 * (1 + 1e-9)
    if all(load.num_tokens == load.num_logits for load in loads):
        assert used.arithmetic == pytest.approx(arithmetic_s / 2)


def test_the_steps_since_an_earlier_moment() -> None:
    spec = MODELS["window"]
    first = [decode_load(3, 20, spec.windows)]
    more = [prefill_load(7, 0, spec.windows), decode_load(3, 30, spec.windows)]
    late = sums_of(first + more, 3.0).since(sums_of(first, 1.0))
    wanted = sums_of(more, 2.0)
    assert late.letters(spec) == wanted.letters(spec)
    assert late.seconds == wanted.seconds
    assert sums_of(first, 1.0).since(StepSums()).letters(spec) == sums_of(first, 1.0).letters(spec)

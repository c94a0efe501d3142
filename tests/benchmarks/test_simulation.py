"""The fit that benchmarks/simulation.py rests on."""

import random

import pytest

from benchmarks.recorded_server import RecordedStep, load_of
from benchmarks.step_fit import KNOTS, features, fit, scaled
from paredown.cost.step_cost import StepLoad, decode_load, prefill_load
from paredown.engine.schedule.counted_request import CountedRequest
from paredown.engine.schedule.step_plan import StepPlan


def seconds(step: StepLoad) -> float:
    return (
        1e-3
        + 2e-5 * step.num_tokens
        + 1e-5 * step.num_requests
        + 1e-8 * step.kv_tokens_read
        + 1e-9 * step.attention_pairs
    )


def test_the_fit_finds_a_cost_and_passes_over_interruptions() -> None:
    rng = random.Random(0)
    loads = [decode_load(rng.randint(1, 40), rng.randint(2, 2000)) for _ in range(300)]
    loads += [prefill_load(rng.randint(1, 512), rng.randint(0, 1000)) for _ in range(300)]
    steps = [RecordedStep(load=one, seconds=seconds(one)) for one in loads]
    found = fit(steps)
    for one in steps:
        assert found.step_s(one.load) == pytest.approx(one.seconds, rel=0.02)
    interrupted = [RecordedStep(load=one.load, seconds=20 * one.seconds) for one in steps[::100]]
    assert fit([*steps, *interrupted]).step_s(steps[0].load) == pytest.approx(
        steps[0].seconds, rel=0.05
    )


def test_a_fit_is_brought_to_the_speed_of_other_steps_short_and_long_ones_apart() -> None:
    few = [decode_load(number, 100) for number in (1, 5, 16)]
    many = [prefill_load(number, 0) for number in (17, 100, 512)]
    fitted = fit([RecordedStep(load=one, seconds=seconds(one)) for one in 20 * [*few, *many]])
    slower = [RecordedStep(load=one, seconds=2 * seconds(one)) for one in few]
    slower += [RecordedStep(load=one, seconds=1.5 * seconds(one)) for one in many]
    both = scaled(fitted, slower)
    for one in slower:
        assert both.step_s(one.load) == pytest.approx(one.seconds, rel=0.02)
    of_few = scaled(fitted, slower[:3])
    assert of_few.step_s(many[0]) == pytest.approx(2 * seconds(many[0]), rel=0.02)


def test_the_fit_is_the_mean_where_most_steps_are_faster_than_it() -> None:
    rng = random.Random(0)
    loads = [decode_load(rng.randint(1, 16), 100) for _ in range(2000)]
    loads += [prefill_load(rng.randint(100, 512), 0) for _ in range(200)]
    steps = [
        RecordedStep(load=one, seconds=seconds(one) * rng.choice((0.8, 0.8, 0.8, 1.6)))
        for one in loads
    ]
    found = fit(steps)
    for part in (steps[:2000], steps[2000:]):
        total_s = sum(found.step_s(one.load) for one in part)
        assert total_s == pytest.approx(sum(one.seconds for one in part), rel=0.03)


@pytest.mark.parametrize("num_tokens", [1, 3, 8, 100, 512, 4000])
def test_hats_add_up_to_one(num_tokens: int) -> None:
    hats = features(prefill_load(num_tokens))[: len(KNOTS)]
    assert sum(hats) == pytest.approx(1)
    expected = min(num_tokens, KNOTS[-1])
    assert sum(a * b for a, b in zip(hats, KNOTS, strict=True)) == pytest.approx(expected)


def test_the_load_of_a_plan() -> None:
    decoding = CountedRequest(id=0, num_prompt_tokens=9, num_output_tokens=5)
    decoding.add_tokens(1)
    decoding.num_computed_tokens = 9
    prompt = CountedRequest(id=1, num_prompt_tokens=40, num_output_tokens=5)
    prompt.num_computed_tokens = 16
    load = load_of(StepPlan(chunks=[(decoding, 1), (prompt, 10)]))
    assert load == StepLoad(
        num_tokens=11,
        num_logits=1,
        num_requests=2,
        attention_pairs=10 + sum(range(17, 27)),
        kv_tokens_read=10 + 26,
    )

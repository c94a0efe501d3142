"""Predictions beside measurements: what was measured exactly as predicted has the ratio 1."""

from dataclasses import replace

import pytest

from cost.test_fit_steps import TRUTH
from fakes.specs import gated
from paredown.cost.model_formats import ModelFormats
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.evaluate.load.benchmark import Cell, LoadResult
from paredown.evaluate.load.run_load import LoadRun, Moment, Served
from paredown.evaluate.load.summary import step_bytes, summarize
from paredown.evaluate.quality.measurement import Measurement
from paredown.evaluate.speed.speed import DECODE_TOKENS, PROMPT_TOKENS, Trial, prefill_flops
from paredown.plan.predicted_load import Compared, compare_alone, compare_cell
from paredown.plan.simulate import Fleet
from paredown.spec.weight import WeightSpec

SPEC = gated(hidden_size=256, head_dim=64, intermediate_size=768, max_positions=4096)
INT4 = WeightSpec(dtype="int4", group_size=32)
COST = PredictedStep(spec=SPEC, formats=ModelFormats(linear=INT4, output=INT4), fit=TRUTH)
# int4 weights are multiplied in int8.
PEAK = TRUTH.roofs.int8_ops_per_s


class Executor:
    spec = SPEC
    weight_bytes = 5_000_000
    kv_token_bytes = 2000
    num_threads = 2
    isa = "amx"


def measurement(**figures: float) -> Measurement:
    return Measurement(name="x", linear_dtype="int4", bits_per_weight=4.5, file_bytes=1, **figures)


def test_one_sequence_is_its_bytes_and_its_arithmetic_over_predicted_seconds() -> None:
    executor_only = replace(COST, with_engine=False)
    context = PROMPT_TOKENS + DECODE_TOKENS // 2
    num_bytes = 5_000_000 + 2000 * context
    decode_s = executor_only.step_s(decode_load(1, context))
    mbu = num_bytes / decode_s / TRUTH.bandwidth(num_bytes)
    mfu = prefill_flops(SPEC, 256) / executor_only.step_s(prefill_load(256)) / PEAK
    trial = Trial(executor=Executor(), weights=INT4)  # type: ignore[arg-type]
    found = compare_alone(COST, trial, measurement(mbu=mbu, mfu=2 * mfu))
    assert [(one.load, one.figure) for one in found] == [
        ("one sequence", "MBU"),
        ("one sequence", "MFU"),
    ]
    assert [one.ratio for one in found] == pytest.approx([1.0, 0.5])


def test_a_short_model_is_predicted_on_as_many_tokens_as_it_is_measured_on() -> None:
    spec = replace(SPEC, max_positions=100)
    executor = Executor()
    executor.spec = spec
    cost = replace(COST, spec=spec)
    trial = Trial(executor=executor, weights=INT4)  # type: ignore[arg-type]
    (_, found) = compare_alone(cost, trial, measurement(mbu=1.0, mfu=1.0))
    alone = replace(cost, with_engine=False)
    assert found.predicted == pytest.approx(
        prefill_flops(spec, 100) / alone.step_s(prefill_load(100)) / PEAK
    )


def measured(cell: Cell, first_s: float, each_s: float, model_s: float) -> LoadResult:
    """All requests of a cell at once, one token after another."""
    times = [first_s + number * each_s for number in range(cell.num_output_tokens)]
    served = [
        Served(
            arrival_s=0.0,
            num_input_tokens=cell.num_input_tokens,
            first_step_s=0.0,
            token_times=times,
            num_tokens=cell.num_output_tokens,
        )
        for _ in range(cell.batch)
    ]
    run = LoadRun(
        served=served,
        moments=[Moment(0.0, 0, cell.batch, 0.5)],
        duration_s=times[-1],
        model_s=model_s,
        num_steps=cell.num_output_tokens,
        num_bytes=3_000_000 * cell.num_output_tokens,
        num_flops=1e9,
        num_preemptions=0,
    )
    runs = [run, run]
    bandwidth = TRUTH.bandwidth(step_bytes(runs))
    summary = summarize(runs, bandwidth_bytes_per_s=bandwidth, peak_per_s=PEAK, slo=None)
    return LoadResult(name=cell.name, runs=runs, summary=summary)


@pytest.mark.parametrize("num_output", [1, 9])
def test_a_batch_that_takes_what_the_model_says_has_no_error(num_output: int) -> None:
    """The prompts fit one step; each later step is a token more for all. The contexts lie between
    two doublings, where the simulated step is the cost model's."""
    cell = Cell(batch=4, num_input_tokens=33, num_output_tokens=num_output)
    fleet = Fleet(num_pages=100, max_positions=4096)

    def seconds(cost: PredictedStep) -> list[float]:
        prompts = replace(prefill_load(33), num_tokens=132, num_logits=4, num_requests=4)
        first = replace(
            prompts,
            attention_pairs=4 * prompts.attention_pairs,
            kv_tokens_read=132,
            num_first_tokens=4,
        )
        loads = [first, *(decode_load(4, 33 + one) for one in range(1, num_output))]
        return [cost.step_s(load) for load in loads]

    steps = seconds(COST)
    model_s = sum(seconds(replace(COST, with_engine=False)))
    each_s = sum(steps[1:]) / max(num_output - 1, 1)
    result = measured(cell, steps[0], each_s, model_s)
    found = compare_cell(COST, fleet, cell, result)
    # Answers of one token have no time between two.
    names = ["TTFT", "MBU", "MFU"] if num_output == 1 else ["TTFT", "TPOT", "MBU", "MFU"]
    assert [one.figure for one in found] == names
    assert {one.load for one in found} == {cell.name}
    for one in found:
        assert one.ratio == pytest.approx(1.0, rel=0.01)
    slower = measured(cell, 2 * steps[0], 2 * each_s, 2 * model_s)
    for one in compare_cell(COST, fleet, cell, slower):
        expected = 0.5 if one.figure in ("TTFT", "TPOT") else 2.0
        assert one.ratio == pytest.approx(expected, rel=0.01)


def test_a_ratio_is_predicted_over_measured() -> None:
    assert Compared(load="x", figure="MBU", predicted=0.6, measured=0.8).ratio == 0.6 / 0.8

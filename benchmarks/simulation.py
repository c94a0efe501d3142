"""The simulator beside a real run of our server: the same requests at the same times.

    python -m benchmarks.simulation [--model FOLDER] [--trace FILE] [--rates 3 6 9] [--seconds 60]
                                    [--threads 1] [--quick] [--json]

A server runs in this process; a client in another sends prompts at random times or at those of a
slice of a trace, over HTTP, and notes when the first and the last token of each answer come.

steps          seconds of a step are fitted to those of a run of a quarter of the time before and of
               one after, on other requests (a shared machine is not as fast in one minute as in the
               next): to the number of tokens (on a line between a few numbers of them), of
               requests, of those that get their first token, of keys that are read and of
               query-key pairs
HTTP           what it adds to the first and the last token, of the same runs before and after: the
               median of their requests
simulation     the requests of each further run, at the times at which they were really sent,
               through the simulator with the same scheduler settings and pages
error          of the median and the 95th percentile of TTFT and of the time to the last token
               (asked: 20 % at most, else the command fails); beside it what the fit is off for a
               single step

Lengths of a trace are divided by 8, since the built-in model has a context of 2,048 tokens.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.recorded_server import (
    Exchange,
    RecordedStep,
    RecordingEngine,
    exchange,
    recorded_server,
)
from paredown.cost.least_squares import least_squares
from paredown.cost.step_cost import StepLoad
from paredown.engine.native.native_executor import load_executor
from paredown.engine.schedule.scheduler import ScheduleConfig
from paredown.evaluate.load.arrival import Arrival
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.tokenizer import Tokenizer
from paredown.plan.simulate import Fleet, simulate
from paredown.plan.simulation import Distribution
from paredown.plan.trace import Trace, open_trace
from paredown.plan.workload import RandomWorkload, TraceLengths, TraceWorkload

TRACE = "traces/azure2023/AzureLLMInferenceTrace_conv.csv"
SHRINK = 8
# Between these numbers of tokens a step's time is on a line.
KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
NUM_PAGES = 2048
MOST_ERROR = 0.2


@dataclass(frozen=True)
class FittedStep:
    """Implements StepCost."""

    coefficients: list[float]

    def step_s(self, step: StepLoad) -> float:
        return sum(a * b for a, b in zip(self.coefficients, features(step), strict=True))


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Seconds that HTTP adds to the first and the last token."""

    ttft_s: float
    e2e_s: float


def features(step: StepLoad) -> tuple[float, ...]:
    """A hat over each knot, then what goes with requests, keys and pairs."""
    hats = [0.0] * len(KNOTS)
    num_tokens = min(max(step.num_tokens, KNOTS[0]), KNOTS[-1])
    above = next(i for i, knot in enumerate(KNOTS) if knot >= num_tokens)
    if num_tokens == KNOTS[above]:
        hats[above] = 1.0
    else:
        low, high = KNOTS[above - 1], KNOTS[above]
        share = (num_tokens - low) / (high - low)
        hats[above - 1], hats[above] = 1 - share, share
    counts = (step.num_requests, step.num_first_tokens)
    return (*hats, *counts, step.kv_tokens_read, step.attention_pairs)


def fit(steps: Sequence[RecordedStep]) -> FittedStep:
    """By relative errors, without the few steps that something else held up."""
    kept = list(steps)
    for _ in range(2):
        fitted = FittedStep(
            least_squares(
                [features(one.load) for one in kept],
                [one.seconds for one in kept],
                [1 / one.seconds for one in kept],
            )
        )
        kept = [one for one in steps if one.seconds < 3 * fitted.step_s(one.load)]
    # Means, not medians: what holds up a step now and then holds up answers too.
    factor = sum(one.seconds for one in steps) / sum(fitted.step_s(one.load) for one in steps)
    return FittedStep([factor * one for one in fitted.coefficients])


def shrunken(trace: Trace, max_tokens: int) -> Trace:
    def shrink(one: Arrival) -> Arrival:
        num_output = max(one.num_output_tokens // SHRINK, 1)
        num_input = min(max(one.num_input_tokens // SHRINK, 1), max_tokens - num_output)
        return replace(one, num_input_tokens=num_input, num_output_tokens=num_output)

    return replace(trace, requests=tuple(shrink(one) for one in trace.requests))


def poisson(trace: Trace, rate: float, seconds: float, seed: int) -> list[Arrival]:
    workload = RandomWorkload(
        requests_per_s=rate,
        num_requests=max(int(rate * seconds), 2),
        lengths=TraceLengths(trace=trace),
        seed=seed,
    )
    return [
        Arrival(
            at_s=one.time_s,
            num_input_tokens=one.num_prompt_tokens,
            num_output_tokens=one.num_output_tokens,
        )
        for one in workload
    ]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Steps of a run at some rate, and what HTTP added to its requests."""

    steps: list[RecordedStep]
    extra_ttfts_s: list[float]
    extra_e2es_s: list[float]


def calibrate(
    url: str, engine: RecordingEngine, trace: Trace, load: tuple[float, float], seed: int
) -> Calibration:
    """`load`: requests per second, and seconds."""
    run = exchange(url, engine, poisson(trace, *load, seed=seed), seed=seed)
    return Calibration(
        steps=run.steps,
        extra_ttfts_s=list(run.extra_ttfts_s),
        extra_e2es_s=list(run.extra_e2es_s),
    )


def calibrated(before: Calibration, after: Calibration) -> tuple[FittedStep, Extra]:
    extra = Extra(
        ttft_s=statistics.median([*before.extra_ttfts_s, *after.extra_ttfts_s]),
        e2e_s=statistics.median([*before.extra_e2es_s, *after.extra_e2es_s]),
    )
    return fit([*before.steps, *after.steps]), extra


def simulated(
    arrivals: Sequence[Arrival], seen: Exchange, cost: FittedStep, fleet: Fleet
) -> tuple[list[float], list[float]]:
    """Seconds to the first and to the last token, as the engine would have them."""
    first_s = min(seen.sent_s)
    sent = sorted(
        (
            replace(one, at_s=at_s - first_s)
            for one, at_s in zip(arrivals, seen.sent_s, strict=True)
        ),
        key=lambda one: one.at_s,
    )
    found = simulate(TraceWorkload(trace=Trace(name="sent", requests=tuple(sent))), fleet, cost)
    assert len(found.e2es_s) == len(arrivals)
    return list(found.ttfts_s), list(found.e2es_s)


def compare(
    name: str,
    arrivals: Sequence[Arrival],
    seen: Exchange,
    model: tuple[FittedStep, Extra],
    fleet: Fleet,
) -> dict[str, object]:
    cost, extra = model
    ttfts_s, e2es_s = simulated(arrivals, seen, cost, fleet)
    row: dict[str, object] = {
        "load": name,
        "requests": len(arrivals),
        "requests_per_s": len(arrivals) / (max(seen.sent_s) - min(seen.sent_s)),
        "http_ttft_ms": 1e3 * extra.ttft_s,
        "http_e2e_ms": 1e3 * extra.e2e_s,
        "coefficients": cost.coefficients,
        "step_error": statistics.median(
            abs(cost.step_s(one.load) / one.seconds - 1) for one in seen.steps
        ),
    }
    for what, measured, predicted, extra_s in (
        ("ttft", seen.ttfts_s, ttfts_s, extra.ttft_s),
        ("e2e", seen.e2es_s, e2es_s, extra.e2e_s),
    ):
        for label, share in (("p50", 0.5), ("p95", 0.95)):
            real = Distribution(measured).quantile(share)
            guess = Distribution([one + extra_s for one in predicted]).quantile(share)
            row[f"{what}_{label}"] = {
                "real_s": real,
                "simulated_s": guess,
                "error": guess / real - 1,
            }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="default: the packaged model")
    parser.add_argument("--trace", type=Path, help=f"default: {TRACE} of $PAREDOWN_DATA")
    parser.add_argument("--rates", type=float, nargs="+", default=[3.0, 6.0, 9.0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run")
    parser.add_argument("--threads", type=int, default=1, help="of the model; HTTP has the others")
    parser.add_argument("--quick", action="store_true", help="two short runs")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seconds, rates = (8.0, [6.0]) if args.quick else (args.seconds, args.rates)
    path = resolve_model(args.model)
    checkpoint, tokenizer = Checkpoint.open(path), Tokenizer.open(path)
    executor = load_executor(checkpoint, num_pages=NUM_PAGES, num_threads=args.threads)
    spec = checkpoint.spec
    data = Path(os.environ.get("PAREDOWN_DATA", "data"))
    trace = shrunken(open_trace(args.trace or data / TRACE), spec.max_positions)
    config = ScheduleConfig()
    fleet = Fleet(num_pages=NUM_PAGES, max_positions=spec.max_positions, schedule=config)
    rows = []
    with recorded_server(executor, tokenizer, config) as (url, engine):
        exchange(url, engine, poisson(trace, max(rates), 2, seed=9), seed=9)  # not counted
        loads = []
        for number, rate in enumerate(rates, start=1):
            arrivals = poisson(trace, rate, seconds, seed=number)
            loads.append(("Poisson", arrivals, number))
            part = trace.first(len(arrivals)).at_rate(rate)
            loads.append((trace.name, list(part.requests), 100 + number))
        before = calibrate(url, engine, trace, (max(rates), seconds / 4), seed=200)
        for name, arrivals, seed in loads:
            seen = exchange(url, engine, arrivals, seed=seed)
            after = calibrate(url, engine, trace, (max(rates), seconds / 4), seed=200 + seed)
            rows.append(compare(name, arrivals, seen, calibrated(before, after), fleet))
            before = after
    report(rows, as_json=args.json)
    missed = [row for row in rows if any(abs(error) > MOST_ERROR for error in errors(row))]
    sys.exit(1 if missed and not args.quick else 0)


def errors(row: dict[str, object]) -> list[float]:
    return [one["error"] for one in row.values() if isinstance(one, dict)]


def report(rows: list[dict[str, object]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"runs": rows}, indent=2))
        return
    for row in rows:
        print(
            f"{row['load']}: {row['requests']} requests, {row['requests_per_s']:.1f}/s; a single "
            f"step is off by {row['step_error']:.0%}; HTTP adds {row['http_ttft_ms']:.1f} ms to "
            f"the first token, {row['http_e2e_ms']:.1f} to the last"
        )
        for name, one in row.items():
            if isinstance(one, dict):
                print(
                    f"  {name:>8}: real {1e3 * one['real_s']:8.1f} ms, simulated "
                    f"{1e3 * one['simulated_s']:8.1f} ms, {one['error']:+.1%}"
                )


if __name__ == "__main__":
    main()

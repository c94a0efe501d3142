"""The simulator beside a real run of our server: the same requests at the same times.

    python -m benchmarks.simulation [--model FOLDER] [--trace FILE] [--rates 3 6 9] [--seconds 60]
                                    [--threads 1] [--quick] [--json]

A server runs in this process; a client in another sends prompts at random times or at those of a
slice of a trace, over HTTP, and notes when the first and the last token of each answer come.

slices         a run is sent in slices of a few seconds, each when the one before is answered, with
               other requests for half as long between them: a shared machine is not as fast in one
               moment as in the next
steps          seconds of a step are fitted to those of all the other requests: to the number of
               tokens (on a line between a few numbers of them), of requests, of those that get
               their first token, of keys that are read and of query-key pairs; and for each slice
               multiplied by how much slower than that the steps just before and after it were
HTTP           what it adds to the first and the last token, of those before and after: one request
               is delayed more than another, so to each simulated one is added what each saw
simulation     the requests of each slice, at the times at which they were really sent, through the
               simulator with the same scheduler settings and pages
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
from dataclasses import dataclass, field, replace
from itertools import pairwise
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
SLICE_S = 6.0
NUM_EXTRAS = 20


@dataclass(frozen=True)
class FittedStep:
    """Implements StepCost."""

    coefficients: list[float]

    def step_s(self, step: StepLoad) -> float:
        return sum(a * b for a, b in zip(self.coefficients, features(step), strict=True))


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Seconds that HTTP adds to the first and the last token: NUM_EXTRAS of each, as likely as
    each other."""

    ttfts_s: list[float]
    e2es_s: list[float]


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
    return fitted


def scaled(fitted: FittedStep, steps: Sequence[RecordedStep]) -> FittedStep:
    """To the speed of these. Means, not medians: what holds up a step holds up answers, too."""
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


def calibrated(
    fitted: FittedStep, before: Calibration, after: Calibration
) -> tuple[FittedStep, Extra]:
    extra = Extra(
        ttfts_s=evenly_picked([*before.extra_ttfts_s, *after.extra_ttfts_s]),
        e2es_s=evenly_picked([*before.extra_e2es_s, *after.extra_e2es_s]),
    )
    return scaled(fitted, [*before.steps, *after.steps]), extra


def evenly_picked(values: list[float]) -> list[float]:
    found = Distribution(values)
    return [found.quantile((index + 0.5) / NUM_EXTRAS) for index in range(NUM_EXTRAS)]


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


def slices(arrivals: Sequence[Arrival]) -> list[list[Arrival]]:
    """Of SLICE_S each, whose times begin at 0."""
    found: dict[int, list[Arrival]] = {}
    for one in arrivals:
        number = int(one.at_s // SLICE_S)
        found.setdefault(number, []).append(replace(one, at_s=one.at_s - SLICE_S * number))
    return list(found.values())


@dataclass(frozen=True, kw_only=True)
class Slice:
    load: str
    arrivals: list[Arrival]
    seen: Exchange


@dataclass
class Comparison:
    """Of all slices of a run: seconds, and by how much each single step was off."""

    real_ttfts_s: list[float] = field(default_factory=list)
    real_e2es_s: list[float] = field(default_factory=list)
    simulated_ttfts_s: list[float] = field(default_factory=list)
    simulated_e2es_s: list[float] = field(default_factory=list)
    step_errors: list[float] = field(default_factory=list)
    extra_ttfts_s: list[float] = field(default_factory=list)
    sent_for_s: float = 0.0

    def add(self, one: Slice, model: tuple[FittedStep, Extra], fleet: Fleet) -> None:
        (cost, extra), seen = model, one.seen
        ttfts_s, e2es_s = simulated(one.arrivals, seen, cost, fleet)
        self.real_ttfts_s += seen.ttfts_s
        self.real_e2es_s += seen.e2es_s
        self.simulated_ttfts_s += [a + b for a in ttfts_s for b in extra.ttfts_s]
        self.simulated_e2es_s += [a + b for a in e2es_s for b in extra.e2es_s]
        self.step_errors += [abs(cost.step_s(it.load) / it.seconds - 1) for it in seen.steps]
        self.extra_ttfts_s += extra.ttfts_s
        self.sent_for_s += max(seen.sent_s) - min(seen.sent_s)

    def row(self, name: str) -> dict[str, object]:
        num_requests = len(self.real_ttfts_s)
        row: dict[str, object] = {
            "load": name,
            "requests": num_requests,
            "requests_per_s": num_requests / self.sent_for_s,
            "http_ttft_ms": 1e3 * statistics.median(self.extra_ttfts_s),
            "step_error": statistics.median(self.step_errors),
        }
        for what, measured, predicted in (
            ("ttft", self.real_ttfts_s, self.simulated_ttfts_s),
            ("e2e", self.real_e2es_s, self.simulated_e2es_s),
        ):
            for label, share in (("p50", 0.5), ("p95", 0.95)):
                real = Distribution(measured).quantile(share)
                guess = Distribution(predicted).quantile(share)
                row[f"{what}_{label}"] = {
                    "real_s": real,
                    "simulated_s": guess,
                    "error": guess / real - 1,
                }
        return row


@dataclass(frozen=True, kw_only=True)
class Run:
    name: str
    arrivals: list[Arrival]


def record(
    url: str, engine: RecordingEngine, runs: Sequence[Run], trace: Trace, other_rate: float
) -> tuple[list[Slice], list[Calibration]]:
    """All slices in turn, and what was sent before, between and after them."""
    exchange(url, engine, poisson(trace, other_rate, 2, seed=9), seed=9)  # not counted
    other = (other_rate, SLICE_S / 2)
    between = [calibrate(url, engine, trace, other, seed=200)]
    sent: list[Slice] = []
    for number, run in enumerate(runs, start=1):
        for index, piece in enumerate(slices(run.arrivals)):
            seen = exchange(url, engine, piece, seed=1000 * number + index)
            sent.append(Slice(load=run.name, arrivals=piece, seen=seen))
            between.append(calibrate(url, engine, trace, other, seed=200_000 + len(sent)))
    return sent, between


def compare(
    sent: Sequence[Slice], between: Sequence[Calibration], fleet: Fleet
) -> list[dict[str, object]]:
    fitted = fit([step for one in between for step in one.steps])
    comparisons: dict[str, Comparison] = {}
    for one, (before, after) in zip(sent, pairwise(between), strict=True):
        comparison = comparisons.setdefault(one.load, Comparison())
        comparison.add(one, calibrated(fitted, before, after), fleet)
    return [comparison.row(name) for name, comparison in comparisons.items()]


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
    runs = []
    for number, rate in enumerate(rates, start=1):
        arrivals = poisson(trace, rate, seconds, seed=number)
        runs.append(Run(name=f"Poisson {rate:g}/s", arrivals=arrivals))
        part = trace.first(len(arrivals)).at_rate(rate)
        runs.append(Run(name=f"{trace.name} {rate:g}/s", arrivals=list(part.requests)))
    with recorded_server(executor, tokenizer, config) as server:
        sent, between = record(*server, runs, trace, max(rates))
    rows = compare(sent, between, fleet)
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
            "the first token"
        )
        for name, one in row.items():
            if isinstance(one, dict):
                print(
                    f"  {name:>8}: real {1e3 * one['real_s']:8.1f} ms, simulated "
                    f"{1e3 * one['simulated_s']:8.1f} ms, {one['error']:+.1%}"
                )


if __name__ == "__main__":
    main()

"""Compares the simulator with a real run of our server: the same requests at the same times.

    python -m benchmarks.simulation [--model FOLDER] [--trace FILE] [--rates 3 6 9] [--seconds 60]
                                    [--threads 1] [--quick] [--json]

A server runs in this process; a client in another sends prompts at random times or at those of a
slice of a trace, over HTTP, and notes when the first and the last token of each answer come.

slices         a run is sent in slices of a few seconds, each when the one before is answered.
               Between them come other requests of its kind at its rate, for as long: a shared
               machine is not as fast in one moment as in the next, and short steps are slower
               after pauses
steps          seconds of a step are fitted to those of all the other requests
               (benchmarks/step_fit.py), and for each slice multiplied by how much slower than that
               the steps just before and after it were
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
from benchmarks.step_fit import FittedStep, fit, scaled
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.evaluate.load.arrival import Arrival
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.plan.simulate import Fleet, simulate
from paredown.plan.simulation import Distribution
from paredown.plan.trace import Trace, open_trace
from paredown.plan.workload import RandomWorkload, TraceLengths, TraceWorkload

TRACE = "traces/azure2023/AzureLLMInferenceTrace_conv.csv"
SHRINK = 8
NUM_PAGES = 2048
MOST_ERROR = 0.2
SLICE_S = 4.0
NUM_EXTRAS = 20


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Seconds that HTTP adds to the first and the last token: NUM_EXTRAS of each, as likely as
    each other."""

    ttfts_s: list[float]
    e2es_s: list[float]


def shrunken(trace: Trace, max_tokens: int) -> Trace:
    def shrink(one: Arrival) -> Arrival:
        num_output = max(one.num_output_tokens // SHRINK, 1)
        num_input = min(max(one.num_input_tokens // SHRINK, 1), max_tokens - num_output)
        return replace(one, num_input_tokens=num_input, num_output_tokens=num_output)

    return replace(trace, requests=tuple(shrink(one) for one in trace.requests))


def poisson(trace: Trace, rate: float, num_requests: int, seed: int) -> list[Arrival]:
    workload = RandomWorkload(
        requests_per_s=rate,
        num_requests=num_requests,
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
class Run:
    """A run; `others` are sent before, between and after its slices."""

    name: str
    slices: list[list[Arrival]]
    others: list[list[Arrival]]


def poisson_run(trace: Trace, rate: float, seconds: float, seed: int) -> Run:
    pieces = slices(poisson(trace, rate, _num_requests(rate, seconds), seed=seed))
    num_others = _num_requests(rate, SLICE_S)
    others = [
        poisson(trace, rate, num_others, seed=1000 * seed + index)
        for index in range(len(pieces) + 1)
    ]
    return Run(name=f"Poisson {rate:g}/s", slices=pieces, others=others)


def trace_run(trace: Trace, rate: float, seconds: float) -> Run:
    """Returns a run of a trace's first requests; its `others` are those that follow."""
    num_requests, num_others = _num_requests(rate, seconds), _num_requests(rate, SLICE_S)
    pieces = slices(trace.first(num_requests).at_rate(rate).requests)
    rest = trace.first(num_requests + (len(pieces) + 1) * num_others).at_rate(rate).requests
    firsts = range(num_requests, len(rest), num_others)
    others = [_from_its_first(rest[first : first + num_others]) for first in firsts]
    return Run(name=f"{trace.name} {rate:g}/s", slices=pieces, others=others)


def _num_requests(rate: float, seconds: float) -> int:
    return max(int(rate * seconds), 2)


def _from_its_first(arrivals: Sequence[Arrival]) -> list[Arrival]:
    return [replace(one, at_s=one.at_s - arrivals[0].at_s) for one in arrivals]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The steps of a run at some rate, and what HTTP added to its requests."""

    steps: list[RecordedStep]
    extra_ttfts_s: list[float]
    extra_e2es_s: list[float]


def calibrate(
    url: str, engine: RecordingEngine, arrivals: Sequence[Arrival], seed: int
) -> Calibration:
    run = exchange(url, engine, arrivals, seed=seed)
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
    """Returns the seconds to the first and the last token in the engine."""
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
    """Returns slices of SLICE_S each, whose times begin at 0."""
    found: dict[int, list[Arrival]] = {}
    for one in arrivals:
        number = int(one.at_s // SLICE_S)
        found.setdefault(number, []).append(replace(one, at_s=one.at_s - SLICE_S * number))
    return list(found.values())


@dataclass(frozen=True, kw_only=True)
class Slice:
    arrivals: list[Arrival]
    seen: Exchange


@dataclass
class Comparison:
    """The seconds of all slices of a run, and the error of each single step."""

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
                simulated = Distribution(predicted).quantile(share)
                row[f"{what}_{label}"] = {
                    "real_s": real,
                    "simulated_s": simulated,
                    "error": simulated / real - 1,
                }
        return row


def record(
    url: str, engine: RecordingEngine, runs: Sequence[Run]
) -> list[tuple[list[Slice], list[Calibration]]]:
    """Records all slices of each run in turn, and what was sent before, between and after them."""
    exchange(url, engine, runs[-1].others[0], seed=9)  # not counted
    found = []
    for number, run in enumerate(runs, start=1):
        assert len(run.others) == len(run.slices) + 1
        sent, between = list[Slice](), list[Calibration]()
        for index, other in enumerate(run.others):
            between.append(calibrate(url, engine, other, seed=200_000 * number + index))
            if index < len(run.slices):
                piece = run.slices[index]
                seen = exchange(url, engine, piece, seed=1000 * number + index)
                sent.append(Slice(arrivals=piece, seen=seen))
        found.append((sent, between))
    return found


def compare(
    runs: Sequence[Run],
    recorded: Sequence[tuple[list[Slice], list[Calibration]]],
    fleet: Fleet,
) -> list[dict[str, object]]:
    fitted = fit([step for _, between in recorded for one in between for step in one.steps])
    rows = []
    for run, (sent, between) in zip(runs, recorded, strict=True):
        comparison = Comparison()
        for one, (before, after) in zip(sent, pairwise(between), strict=True):
            comparison.add(one, calibrated(fitted, before, after), fleet)
        rows.append(comparison.row(run.name))
    return rows


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
    data = os.environ.get("PAREDOWN_DATA")
    if args.trace is None and not data:
        parser.error("--trace, or $PAREDOWN_DATA, must say where the trace is")
    trace_path = args.trace or Path(data or "", TRACE)
    seconds, rates = (8.0, [6.0]) if args.quick else (args.seconds, args.rates)
    path = resolve_model(args.model)
    checkpoint, tokenizer = Checkpoint.open(path), Tokenizer.open(path)
    executor = load_executor(
        checkpoint, RunOptions(num_pages=NUM_PAGES, threads=ThreadPlan.resolve(args.threads))
    )
    spec = checkpoint.spec
    trace = shrunken(open_trace(trace_path), spec.max_positions)
    config = ScheduleConfig()
    fleet = Fleet(num_pages=NUM_PAGES, max_positions=spec.max_positions, schedule=config)
    runs = []
    for seed, rate in enumerate(rates, start=1):
        runs += [poisson_run(trace, rate, seconds, seed), trace_run(trace, rate, seconds)]
    with recorded_server(executor, tokenizer, config) as server:
        recorded = record(*server, runs)
    rows = compare(runs, recorded, fleet)
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

"""TTFT, TPOT and peak memory: predicted from a sweep of made-up models, against measured.

    python -m benchmarks.prediction [--quick] [--kept] [--models MODEL ...] [--json OUT]

Models: the packaged one and random weights of the shapes of Qwen2.5-0.5B and Llama-3.2-1B, in bf16,
int8 and int4-g32 (the output layer in bf16, int8 and int8), each in a process of its own, on the
engine that serves, greedy. A shared machine is not as fast in one minute as in the next, so all
points take turns, round after round (of each as many as begin in `--point-seconds`), and so do
they with the rounds of `paredown doctor --sweep`'s measurement (`--kept`: as it was kept, not
anew): one after each 20 seconds. Figures of both are lower quartiles. Nothing is fitted to these
models. "executor" is the same error of the executor's steps alone: what is off there is off in
kernels, the rest in the engine around them. Memory: what the process has taken itself after all
(not the mapped checkpoint), beyond what it had before loading. Exit code 1 where a mean error is
above its bar.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.checkpoints.cache import PACKAGED, Variant, paredown_folder
from benchmarks.cpu_peers import BENCH_FOLDER
from benchmarks.measured_serving import (
    NUM_WARMING,
    Job,
    Measured,
    Point,
    Seconds,
    ServingProcess,
)
from paredown.cost.machine_file import need_step_fit
from paredown.cost.memory import model_memory
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.serving import MAX_STEP_TOKENS, ttft_s
from paredown.cost.step_cost import decode_load
from paredown.cost.step_fit import StepFit
from paredown.evaluate.speed.step_sweep import StepSweep, SweepConfig
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import default_num_threads, measure_machine, processor_name
from paredown.models.checkpoint import Checkpoint
from paredown.models.run_forms import model_formats
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.machine import Machine
from paredown.units import MEGA

MODELS = (PACKAGED, "qwen2.5-0.5b", "llama-3.2-1b")
FORMATS = ("bf16", "int8", "int4-g32")
POINTS = (
    Point(task="ttft", num_tokens=64),
    Point(task="ttft", num_tokens=512),
    Point(task="ttft", num_tokens=1500),
    Point(task="tpot", num_tokens=64),
    Point(task="tpot", num_tokens=1500),
    Point(task="tpot", num_tokens=256, batch=4),
    Point(task="tpot", num_tokens=256, batch=16),
)
QUICK_POINTS = (
    Point(task="ttft", num_tokens=64),
    Point(task="ttft", num_tokens=256),
    Point(task="tpot", num_tokens=64),
    Point(task="tpot", num_tokens=64, batch=8),
)
# Seconds of measuring between rounds of the sweep.
SWEEP_EVERY_S = 20.0
MAX_TIME_ERROR = 0.15
MAX_MEMORY_ERROR = 0.10


@dataclass(frozen=True, kw_only=True)
class Row:
    """Seconds, or for memory bytes; `executor` is what was predicted for and measured of the
    executor alone."""

    model: str
    format: str
    what: str
    predicted: float
    measured: float
    executor: tuple[float, float] | None = None

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def executor_error(self) -> float | None:
        return None if self.executor is None else self.executor[0] / self.executor[1] - 1


def variant_of(model: str, name: str) -> Variant:
    return Variant(model=model, format=name, output_format=name if name == "bf16" else "int8")


def predict(folder: Path, job: Job, fit: StepFit) -> tuple[dict[Point, Seconds], int]:
    """Seconds of each point, and bytes."""
    checkpoint = Checkpoint.open(folder)
    spec, formats = checkpoint.spec, model_formats(checkpoint)
    cost = PredictedStep(spec=spec, formats=formats, fit=fit)
    alone = replace(cost, with_engine=False)

    def seconds_of(point: Point, cost: PredictedStep) -> float:
        if point.task == "ttft":
            return ttft_s(cost, spec, point.num_tokens)
        context = point.num_tokens + NUM_WARMING + job.num_steps // 2
        return cost.step_s(decode_load(point.batch, context, spec.windows))

    seconds = {
        point: Seconds(seconds_of(point, cost), seconds_of(point, alone)) for point in job.points
    }
    return seconds, predict_bytes(checkpoint, job)


def predict_bytes(checkpoint: Checkpoint, job: Job) -> int:
    """Weights, pages, and what the largest step works in, its logits too."""
    spec, formats = checkpoint.spec, model_formats(checkpoint)
    most_tokens = max(point.batch * point.num_tokens for point in job.points)
    step_tokens = min(MAX_STEP_TOKENS, most_tokens)
    batch = max(point.batch for point in job.points)
    context = job.num_pages * PAGE_SIZE // batch
    sizes = {"batch": batch, "context": context, "step_tokens": step_tokens}
    return model_memory(spec, formats, **sizes).total


def rows_of(
    model: str, name: str, measured: Measured, predicted: tuple[dict[Point, Seconds], int]
) -> list[Row]:
    seconds, num_bytes = predicted
    rows = [
        Row(
            model=model,
            format=name,
            what=point.name,
            predicted=seconds[point].whole,
            measured=found.whole,
            executor=(seconds[point].executor, found.executor),
        )
        for point, found in measured.seconds.items()
    ]
    taken = measured.peak_bytes - measured.base_bytes
    return [
        *rows,
        Row(model=model, format=name, what="memory", predicted=num_bytes, measured=taken),
    ]


def mean_errors(rows: Sequence[Row]) -> dict[str, float]:
    """Mean absolute errors of what was predicted, and the largest of memory."""
    groups = {
        "TTFT": [row for row in rows if row.what.startswith("ttft")],
        "TPOT": [row for row in rows if row.what.startswith("tpot")],
        "TTFT and TPOT": [row for row in rows if row.what != "memory"],
        "memory": [row for row in rows if row.what == "memory"],
    }
    return {
        name: statistics.mean(abs(row.error) for row in group) for name, group in groups.items()
    }


def show(rows: Sequence[Row]) -> None:
    for row in rows:
        scale, unit = (MEGA, "MB") if row.what == "memory" else (1e-3, "ms")
        alone = "" if row.executor_error is None else f"{row.executor_error:>+8.1%}"
        print(
            f"{row.model:>14} {row.format:>9} {row.what:>14} {row.predicted / scale:>8,.2f} {unit} "
            f"{row.measured / scale:>8,.2f} {unit} {row.error:>+7.1%} {alone}",
            flush=True,
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=BENCH_FOLDER / "models", help="models")
    parser.add_argument("--models", nargs="*", default=None, choices=MODELS)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--rounds", type=int, default=7, help="of a point, at most")
    parser.add_argument(
        "--point-seconds", type=float, default=8.0, help="after which a point begins no new round"
    )
    parser.add_argument("--quick", action="store_true", help="one model, few points, a short sweep")
    parser.add_argument("--kept", action="store_true", help="the sweep that doctor has kept")
    parser.add_argument("--json", type=Path, default=None, metavar="OUT")
    return parser.parse_args()


def sweep_config(args: argparse.Namespace) -> SweepConfig:
    config = SweepConfig(formats=FORMATS, kv_dtypes=("bf16",))
    if not args.quick:
        return config
    return replace(
        config,
        num_tokens=(1, 4, 16, 64, 256),
        models=config.models[:2],
        contexts=(256,),
        chunk_tokens=(64,),
        num_engine_models=1,
    )


class InterleavedSweep:
    """Rounds of a sweep between other measurements, so that both see the same machine."""

    def __init__(self, machine: Machine, config: SweepConfig) -> None:
        self._sweep = StepSweep(machine, config)
        self._num_left = config.num_rounds
        self._run_round()  # does not count
        self._next_s = time.monotonic()

    def keep_up(self) -> None:
        """A round, where one is due."""
        if time.monotonic() >= self._next_s:
            self._run_round()
            self._num_left -= 1
            self._next_s = time.monotonic() + SWEEP_EVERY_S

    def fit(self) -> StepFit:
        """After as many rounds as a sweep has, or more."""
        for _ in range(self._num_left):
            self._run_round()
        return self._sweep.fit()

    def _run_round(self) -> None:
        for part in self._sweep.parts:
            part.run_round()


def measure_in_turn(processes: Sequence[ServingProcess], args: argparse.Namespace) -> StepFit:
    """All points in rounds, the sweep between them."""
    sweep = None
    if not args.kept:
        sweep = InterleavedSweep(measure_machine(args.threads), sweep_config(args))
    for _ in range(args.rounds):
        for process in processes:
            for point in process.job.points:
                if sweep is not None:
                    sweep.keep_up()
                if process.spent_s[point] < args.point_seconds:
                    process.run_round(point)
    if sweep is not None:
        return sweep.fit()
    return need_step_fit(processor_name(), chosen_isa(), args.threads)


def job_of(folder: Path, args: argparse.Namespace) -> Job:
    return Job(
        folder=folder,
        points=QUICK_POINTS if args.quick else POINTS,
        num_threads=args.threads,
        num_steps=12 if args.quick else 24,
    )


def main() -> int:
    args = arguments()
    models = args.models or (MODELS[:1] if args.quick else MODELS)
    folders = {
        (model, name): paredown_folder(args.folder, variant_of(model, name))
        for model in models
        for name in FORMATS
    }
    with ExitStack() as stack:
        processes = {
            key: stack.enter_context(ServingProcess(job_of(folder, args)))
            for key, folder in folders.items()
        }
        fit = measure_in_turn(list(processes.values()), args)
        measured = {key: process.measured() for key, process in processes.items()}
    print(
        f"{'model':>14} {'format':>9} {'':>14} {'predicted':>11} {'measured':>11} {'error':>7} "
        f"{'executor':>8}"
    )
    rows = []
    for (model, name), found in measured.items():
        job = processes[model, name].job
        rows += rows_of(model, name, found, predict(job.folder, job, fit))
    show(rows)
    errors = mean_errors(rows)
    for name, error in errors.items():
        print(f"mean absolute error, {name}: {error:.1%}")
    num_points = sum(row.what != "memory" for row in rows)
    passed = errors["TTFT and TPOT"] <= MAX_TIME_ERROR and errors["memory"] <= MAX_MEMORY_ERROR
    print(
        f"{num_points} points; bars {MAX_TIME_ERROR:.0%} and {MAX_MEMORY_ERROR:.0%}: "
        f"{'pass' if passed else 'FAIL'}"
    )
    if args.json is not None:
        document = {
            "calibration": fit.as_json(),
            "rows": [asdict(row) | {"error": row.error} for row in rows],
            "errors": errors,
        }
        args.json.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

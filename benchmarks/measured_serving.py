"""TTFT, TPOT and peak memory of a checkpoint on our engine, measured in a process of its own that
stays until all rounds are done, so that many checkpoints can take turns."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, Self

from paredown.cost.serving import MAX_STEP_TOKENS
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.evaluate.quality.quartile import lower_quartile
from paredown.evaluate.speed.engine_steps import StepTimer
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.kv import PAGE_SIZE

Task = Literal["ttft", "tpot"]
# Warm-up steps after prompts.
NUM_WARMING = 3
# Short prompts run for this time before a measurement, because another process ran before.
_WARMING_S = 0.05
_WARMING_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class Point:
    """A TTFT point with one prompt of `num_tokens`, or a TPOT point with `batch` sequences of about
    that length."""

    task: Task
    num_tokens: int
    batch: int = 1

    @property
    def name(self) -> str:
        return f"{self.task} {self.num_tokens}" + (f" x {self.batch}" if self.batch > 1 else "")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A checkpoint's points; a round has `num_steps` decode steps."""

    folder: Path
    points: tuple[Point, ...]
    num_threads: int
    num_steps: int

    def max_tokens(self, point: Point) -> int:
        """Returns enough for the first sequence to continue while the other prompts are
        computed."""
        prompt_steps = point.batch * -(-point.num_tokens // (MAX_STEP_TOKENS - point.batch)) + 1
        return 1 if point.task == "ttft" else prompt_steps + NUM_WARMING + self.num_steps + 1

    @property
    def num_pages(self) -> int:
        """Returns the pages for the largest point."""
        return max(
            point.batch * (-(-(point.num_tokens + self.max_tokens(point)) // PAGE_SIZE))
            for point in self.points
        )


@dataclass(frozen=True)
class Seconds:
    """The seconds of everything, and of the executor's steps."""

    whole: float
    executor: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """`base_bytes` is what the process had taken before it loaded anything, `peak_bytes` the most
    it took, both resident; the mapped checkpoint's own pages, which the system may drop at any
    time, are not in them."""

    seconds: dict[Point, Seconds] = field(default_factory=dict)
    base_bytes: int = 0
    peak_bytes: int = 0


class Serving:
    """A job's loaded model, whose points are measured in rounds."""

    def __init__(self, job: Job) -> None:
        self._job = job
        checkpoint = Checkpoint.open(job.folder)
        self._tokenizer = Tokenizer.open(job.folder)
        self._base_bytes = own_bytes()
        self._executor = load_executor(
            checkpoint,
            RunOptions(num_pages=job.num_pages, threads=ThreadPlan.resolve(job.num_threads)),
        )
        self._found: dict[Point, list[Seconds]] = {point: [] for point in job.points}

    def run_round(self, point: Point) -> None:
        timer = StepTimer(self._executor)
        engine_of = partial(
            Engine, timer.executor, self._tokenizer, ScheduleConfig(prefix_cache=False)
        )
        if point.task == "ttft":
            warming = replace(point, num_tokens=min(_WARMING_TOKENS, point.num_tokens))
            warm_s = time.perf_counter() + _WARMING_S
            while time.perf_counter() < warm_s:
                _first_token(engine_of(), timer, warming)
            self._found[point].append(_first_token(engine_of(), timer, point))
        else:
            self._found[point] += _decode_steps(engine_of(), timer, point, self._job)

    def measured(self) -> Measured:
        seconds = {
            point: Seconds(
                lower_quartile([one.whole for one in found]),
                lower_quartile([one.executor for one in found]),
            )
            for point, found in self._found.items()
        }
        return Measured(seconds=seconds, base_bytes=self._base_bytes, peak_bytes=own_bytes())


class ServingProcess:
    """A Serving in a fresh process, used as a context manager. `spent_s` is the time of each
    point's rounds."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.spent_s = dict.fromkeys(job.points, 0.0)
        self._pool = multiprocessing.get_context("spawn").Pool(1)

    def __enter__(self) -> Self:
        self._pool.apply(_open, (self.job,))
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()

    def run_round(self, point: Point) -> None:
        started = time.perf_counter()
        self._pool.apply(_run_round, (point,))
        self.spent_s[point] += time.perf_counter() - started

    def measured(self) -> Measured:
        return self._pool.apply(_measured)


# The model of a process that a ServingProcess has started.
_servings = list[Serving]()


def _open(job: Job) -> None:
    _servings.append(Serving(job))


def _run_round(point: Point) -> None:
    _servings[0].run_round(point)


def _measured() -> Measured:
    return _servings[0].measured()


def own_bytes() -> int:
    """Returns this process's resident memory without file mappings."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon in /proc/self/status")


def _first_token(engine: Engine, timer: StepTimer, point: Point) -> Seconds:
    """Measures from the arrival of a prompt."""
    prompt, params = _prompt(timer, point.num_tokens, 0), _params(1)

    def answer() -> None:
        engine.submit(prompt, params)
        while engine.has_work:
            engine.step()

    return _timed(timer, answer)


def _decode_steps(engine: Engine, timer: StepTimer, point: Point, job: Job) -> list[Seconds]:
    """Measures steps in which every sequence gets a token and nothing else happens."""
    params = _params(job.max_tokens(point))
    requests = [
        engine.submit(_prompt(timer, point.num_tokens, number), params)
        for number in range(point.batch)
    ]
    while any(one.num_generated_tokens == 0 for one in requests):
        engine.step()
    found = [_timed(timer, engine.step) for _ in range(NUM_WARMING + job.num_steps)]
    return found[NUM_WARMING:]


def _timed(timer: StepTimer, work: Callable[[], object]) -> Seconds:
    timer.seconds = 0.0
    started = time.perf_counter()
    work()
    return Seconds(time.perf_counter() - started, timer.seconds)


def _params(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)


def _prompt(timer: StepTimer, num_tokens: int, number: int) -> list[int]:
    vocab_size = timer.executor.spec.vocab_size
    return [(7919 * (i + 1) + 104729 * number) % vocab_size for i in range(num_tokens)]

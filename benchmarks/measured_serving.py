"""TTFT, TPOT and peak memory of a checkpoint on our engine, measured in a process of its own."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from paredown.cost.serving import MAX_STEP_TOKENS
from paredown.engine.engine import Engine
from paredown.engine.native.native_executor import NativeExecutor, load_executor
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.scheduler import ScheduleConfig
from paredown.evaluate.engine_steps import StepTimer
from paredown.evaluate.quartile import lower_quartile
from paredown.models.checkpoint import Checkpoint
from paredown.models.tokenizer import Tokenizer
from paredown.spec.kv import PAGE_SIZE

Task = Literal["ttft", "tpot"]
# Steps after prompts that do not count.
NUM_WARMING = 3
# Prompts do not count before this time: the first ones of a process are slower.
_WARMING_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Point:
    """TTFT of a prompt of `num_tokens` alone, or TPOT of `batch` sequences of about so many."""

    task: Task
    num_tokens: int
    batch: int = 1

    @property
    def name(self) -> str:
        return f"{self.task} {self.num_tokens}" + (f" x {self.batch}" if self.batch > 1 else "")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A checkpoint's points: `num_rounds` of each, or as many as begin within `point_s` seconds and
    one at least; some rounds before do not count."""

    folder: Path
    points: tuple[Point, ...]
    num_threads: int
    num_rounds: int
    num_steps: int
    point_s: float

    def max_tokens(self, point: Point) -> int:
        """Enough for the first sequence to go on while the prompts of the others are computed."""
        prompt_steps = point.batch * -(-point.num_tokens // (MAX_STEP_TOKENS - point.batch)) + 1
        return 1 if point.task == "ttft" else prompt_steps + NUM_WARMING + self.num_steps + 1

    @property
    def num_pages(self) -> int:
        """For the largest point."""
        return max(
            point.batch * (-(-(point.num_tokens + self.max_tokens(point)) // PAGE_SIZE))
            for point in self.points
        )


@dataclass(frozen=True)
class Seconds:
    """Of all that happens, and of the executor's steps in it."""

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


def measure_apart(job: Job) -> Measured:
    """In a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (job,))


def measure(job: Job) -> Measured:
    checkpoint = Checkpoint.open(job.folder)
    tokenizer = Tokenizer.open(job.folder)
    base = own_bytes()
    executor = load_executor(checkpoint, num_pages=job.num_pages, num_threads=job.num_threads)
    seconds = {point: _measure_point(executor, tokenizer, point, job) for point in job.points}
    return Measured(seconds=seconds, base_bytes=base, peak_bytes=own_bytes())


def own_bytes() -> int:
    """Resident memory of this process that is not a file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon in /proc/self/status")


def _measure_point(
    executor: NativeExecutor, tokenizer: Tokenizer, point: Point, job: Job
) -> Seconds:
    timer = StepTimer(executor)
    engine_of = partial(Engine, timer.executor, tokenizer, ScheduleConfig(prefix_cache=False))
    if point.task == "ttft":
        warm_s = time.perf_counter() + _WARMING_S
        while time.perf_counter() < warm_s:
            _first_token(engine_of(), timer, point)
    ends_s = time.perf_counter() + job.point_s
    found = list[Seconds]()
    for number in range(job.num_rounds):
        if number > 0 and time.perf_counter() > ends_s:
            break
        if point.task == "ttft":
            found.append(_first_token(engine_of(), timer, point))
        else:
            found += _decode_steps(engine_of(), timer, point, job)
    return Seconds(
        lower_quartile([one.whole for one in found]),
        lower_quartile([one.executor for one in found]),
    )


def _first_token(engine: Engine, timer: StepTimer, point: Point) -> Seconds:
    """From the arrival of a prompt on."""
    prompt, params = _prompt(timer, point.num_tokens, 0), _params(1)

    def answer() -> None:
        engine.submit(prompt, params)
        while engine.has_work:
            engine.step()

    return _timed(timer, answer)


def _decode_steps(engine: Engine, timer: StepTimer, point: Point, job: Job) -> list[Seconds]:
    """Steps in which every sequence gets a token and nothing else happens."""
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

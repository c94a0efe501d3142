"""TTFT, TPOT and peak memory of a checkpoint on our engine, measured in a process of its own."""

import multiprocessing
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from paredown.cost.serving import MAX_STEP_TOKENS
from paredown.engine.engine import Engine
from paredown.engine.native.native_executor import NativeExecutor, load_executor
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.scheduler import ScheduleConfig
from paredown.evaluate.quartile import lower_quartile
from paredown.models.checkpoint import Checkpoint
from paredown.models.tokenizer import Tokenizer
from paredown.spec.kv import PAGE_SIZE

Task = Literal["ttft", "tpot"]


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
    """A checkpoint's points."""

    folder: Path
    points: tuple[Point, ...]
    num_threads: int
    num_rounds: int
    num_steps: int

    def max_tokens(self, point: Point) -> int:
        """Enough for the first sequence to go on while the prompts of the others are computed."""
        prompt_steps = point.batch * -(-point.num_tokens // (MAX_STEP_TOKENS - point.batch)) + 1
        return 1 if point.task == "ttft" else prompt_steps + self.num_steps + 1

    @property
    def num_pages(self) -> int:
        """For the largest point."""
        return max(
            point.batch * (-(-(point.num_tokens + self.max_tokens(point)) // PAGE_SIZE))
            for point in self.points
        )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """`base_bytes` is what the process had taken before it loaded anything, `peak_bytes` the most
    it took, both resident; the mapped checkpoint's own pages, which the system may drop at any
    time, are not in them."""

    seconds: dict[Point, float] = field(default_factory=dict)
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


def _measure_point(executor: NativeExecutor, tokenizer: Tokenizer, point: Point, job: Job) -> float:
    measure_one = _ttft_s if point.task == "ttft" else _tpot_s
    rounds = [measure_one(executor, tokenizer, point, job) for _ in range(job.num_rounds + 1)]
    return lower_quartile(rounds[1:])


def _ttft_s(executor: NativeExecutor, tokenizer: Tokenizer, point: Point, job: Job) -> float:
    engine = _engine(executor, tokenizer)
    started = time.perf_counter()
    engine.submit(_prompt(executor, point.num_tokens, 0), _params(job.max_tokens(point)))
    while engine.has_work:
        engine.step()
    return time.perf_counter() - started


def _tpot_s(executor: NativeExecutor, tokenizer: Tokenizer, point: Point, job: Job) -> float:
    """The lower quartile of steps in which every sequence gets a token and nothing else happens."""
    engine = _engine(executor, tokenizer)
    requests = [
        engine.submit(_prompt(executor, point.num_tokens, number), _params(job.max_tokens(point)))
        for number in range(point.batch)
    ]
    while any(one.num_generated_tokens == 0 for one in requests):
        engine.step()
    steps = []
    for _ in range(job.num_steps):
        started = time.perf_counter()
        engine.step()
        steps.append(time.perf_counter() - started)
    return lower_quartile(steps)


def _engine(executor: NativeExecutor, tokenizer: Tokenizer) -> Engine:
    return Engine(executor, tokenizer, ScheduleConfig(prefix_cache=False))


def _params(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)


def _prompt(executor: NativeExecutor, num_tokens: int, number: int) -> list[int]:
    vocab_size = executor.spec.vocab_size
    return [(7919 * (i + 1) + 104729 * number) % vocab_size for i in range(num_tokens)]

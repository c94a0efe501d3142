"""LoadBenchmark: runs loads through one engine in sequence and relates them to the machine's
limits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paredown.engine.detokenize import prepare_texts
from paredown.engine.engine import Engine
from paredown.errors import CapacityError, RequestError
from paredown.evaluate.load.arrival import Arrival, together
from paredown.evaluate.load.meter import Meter
from paredown.evaluate.load.run_load import LoadRun, run_load
from paredown.evaluate.load.slo import SLO
from paredown.evaluate.load.summary import LoadSummary, step_bytes, summarize
from paredown.evaluate.speed.speed import MeasuredExecutor
from paredown.executors.protocol import Executor
from paredown.kernels.probe import measure_bandwidth
from paredown.progress import OnCount
from paredown.spec.kv import PAGE_SIZE

# Wakes threads and fills caches before what counts.
_WARM_UP = together(1, 16, 4)
# A separate round, so that its prompts differ from the measured ones.
_WARM_UP_ROUND = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A load of `batch` simultaneous requests of equal lengths."""

    batch: int
    num_input_tokens: int
    num_output_tokens: int

    @property
    def name(self) -> str:
        return f"{self.batch} x {self.num_input_tokens} + {self.num_output_tokens}"

    @property
    def num_pages(self) -> int:
        """Returns the number of pages that hold the whole load at once."""
        return self.batch * -(-(self.num_input_tokens + self.num_output_tokens) // PAGE_SIZE)


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    name: str
    runs: list[LoadRun]
    summary: LoadSummary


def max_tokens_per_request(executor: Executor) -> int:
    """Returns the longest prompt plus answer: the context, or all the pages if they hold less."""
    return min(executor.spec.max_positions, executor.num_pages * PAGE_SIZE)


def check_lengths(requests: Sequence[Cell | Arrival], executor: Executor) -> None:
    """Raises CapacityError for a request that the model or its pages cannot hold."""
    limit = max_tokens_per_request(executor)
    for one in requests:
        if one.num_input_tokens + one.num_output_tokens > limit:
            raise CapacityError(
                "requests are longer than the context and the KV pages allow",
                seen=f"{one.num_input_tokens} + {one.num_output_tokens} tokens, room for {limit}",
                remedy="Ask for shorter ones, or give more pages (--pages).",
            )


class LoadBenchmark:
    """Measures loads on one executor. `make_engine` builds an engine over the metered executor.
    `peak_per_s` is the peak of the arithmetic in use (evaluate/speed/speed.py). The prefix cache
    holds only pages of earlier runs, whose prompts differ."""

    def __init__(
        self,
        executor: MeasuredExecutor,
        make_engine: Callable[[Executor], Engine],
        *,
        peak_per_s: float,
        slo: SLO | None = None,
        seed: int = 0,
        measure: Callable[[int, int], float] = measure_bandwidth,
    ) -> None:
        self._executor = executor
        self._meter = Meter(executor)
        self.engine = make_engine(self._meter.executor)
        prepare_texts(self.engine.tokenizer, executor.spec.vocab_size)
        self._peak_per_s = peak_per_s
        self._slo = slo
        self._seed = seed
        self._measure = measure
        run_load(self.engine, self._meter, _WARM_UP, seed=(seed, _WARM_UP_ROUND))

    def run_cells(
        self, cells: Sequence[Cell], num_rounds: int, on_progress: OnCount | None = None
    ) -> list[LoadResult]:
        """Runs all cells in turn, `num_rounds` times, each time with new prompts."""
        check_lengths(cells, self._executor)
        runs: list[list[LoadRun]] = [[] for _ in cells]
        for number in range(num_rounds):
            for place, cell in enumerate(cells):
                done = number * len(cells) + place
                arrivals = together(cell.batch, cell.num_input_tokens, cell.num_output_tokens)
                seed = (self._seed, done)
                runs[place].append(run_load(self.engine, self._meter, arrivals, seed=seed))
                if on_progress is not None:
                    on_progress(done + 1, num_rounds * len(cells))
        return [self._result(cell.name, found) for cell, found in zip(cells, runs, strict=True)]

    def run_arrivals(
        self, name: str, arrivals: Sequence[Arrival], on_progress: OnCount | None = None
    ) -> LoadResult:
        """Runs the load once, in real time."""
        check_lengths(arrivals, self._executor)
        run = run_load(
            self.engine, self._meter, arrivals, seed=(self._seed, 0), on_progress=on_progress
        )
        return self._result(name, [run])

    def _result(self, name: str, runs: list[LoadRun]) -> LoadResult:
        """Returns the result. Raises RequestError if not a single request was answered."""
        failures = [one.failure for run in runs for one in run.served]
        if None not in failures:
            raise RequestError(
                "every request failed", seen=failures[0], remedy="See whether `generate` works."
            )
        bandwidth = self._measure(self._executor.threads.prefill, step_bytes(runs))
        summary = summarize(
            runs, bandwidth_bytes_per_s=bandwidth, peak_per_s=self._peak_per_s, slo=self._slo
        )
        return LoadResult(name=name, runs=runs, summary=summary)

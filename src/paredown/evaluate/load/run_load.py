"""Sends requests to the engine as they arrive, in real time and without HTTP.

The engine is stepped while it has work; requests are submitted between two steps, as in a server.
Times count from a request's scheduled arrival, so waiting for a step to end is part of its latency.
"""

import itertools
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from paredown.engine.engine import Engine
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.evaluate.load.arrival import Arrival
from paredown.evaluate.load.meter import Meter
from paredown.progress import OnCount


@dataclass(slots=True, kw_only=True)
class Served:
    """One answered request; times are seconds since the start of the run. `token_times` has an
    entry for each delivery of tokens, and `num_tokens` is their total."""

    arrival_s: float
    num_input_tokens: int
    num_cached_tokens: int = 0
    first_step_s: float = 0.0
    token_times: list[float] = field(default_factory=list)
    num_tokens: int = 0
    failure: str | None = None

    @property
    def ttft_s(self) -> float:
        """Returns the time to the first token."""
        return self.token_times[0] - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Returns the time per output token after the first; None for a single token."""
        if self.num_tokens < 2:
            return None
        return (self.token_times[-1] - self.token_times[0]) / (self.num_tokens - 1)

    @property
    def itl_s(self) -> list[float]:
        """Returns the gaps between deliveries of tokens."""
        return [after - before for before, after in itertools.pairwise(self.token_times)]

    @property
    def e2e_s(self) -> float:
        """Returns the time from arrival to the last token."""
        return self.token_times[-1] - self.arrival_s

    @property
    def queue_s(self) -> float:
        """Returns the time until a step first computed some of it."""
        return self.first_step_s - self.arrival_s


@dataclass(frozen=True, slots=True)
class Moment:
    """The state after a step: waiting and running requests, and the share of pages in use."""

    time_s: float
    num_waiting: int
    num_running: int
    kv_share: float


@dataclass(kw_only=True)
class LoadRun:
    """The result of one run. The executor took `model_s` of `duration_s` for its `num_steps` steps,
    read `num_bytes` and computed `num_flops`."""

    served: list[Served]
    moments: list[Moment]
    duration_s: float
    model_s: float
    num_steps: int
    num_bytes: int
    num_flops: float
    num_preemptions: int
    num_proposed: int = 0
    num_accepted: int = 0


def run_load(
    engine: Engine,
    meter: Meter,
    arrivals: Sequence[Arrival],
    *,
    seed: tuple[int, int] = (0, 0),
    on_progress: OnCount | None = None,
) -> LoadRun:
    """Runs one load. `engine` must be idle, use the executor of `meter` and let all requests wait.
    `seed` determines the prompts. Answers are greedy and have the requested length. Raises whatever
    the engine refuses a request with."""
    counts, num_before = _speculation_counts(engine), engine.scheduler.num_preemptions
    meter.reset()
    driver = _Driver(engine, arrivals, seed)
    goes_on = True
    while goes_on:
        goes_on = driver.step()
        if on_progress is not None:
            on_progress(driver.num_ended, len(arrivals))
    proposed, accepted = _speculation_counts(engine)
    return LoadRun(
        served=driver.served,
        moments=driver.moments,
        duration_s=driver.now_s,
        model_s=meter.seconds,
        num_steps=meter.num_steps,
        num_bytes=meter.num_bytes,
        num_flops=meter.num_flops,
        num_preemptions=engine.scheduler.num_preemptions - num_before,
        num_proposed=proposed - counts[0],
        num_accepted=accepted - counts[1],
    )


class _Driver:
    def __init__(self, engine: Engine, arrivals: Sequence[Arrival], seed: tuple[int, int]) -> None:
        self._engine = engine
        self._pending = deque(arrivals)
        self._num_submitted = 0
        self._seed = seed
        self._live: dict[int, tuple[Request, Served]] = {}
        self.served: list[Served] = []
        self.moments: list[Moment] = []
        self.num_ended = 0
        self._start_s = time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._start_s

    def step(self) -> bool:
        """Submits the arrived requests, then runs a step or waits for the next arrival. Returns
        False when all requests are answered."""
        now_s = self.now_s
        while self._pending and self._pending[0].at_s <= now_s:
            self._submit(self._pending.popleft())
        if self._engine.has_work:
            self._run_step()
        elif self._pending:
            time.sleep(max(0.0, self._pending[0].at_s - self.now_s))
        return bool(self._pending or self._live)

    def _submit(self, arrival: Arrival) -> None:
        seed = (*self._seed, self._num_submitted)
        self._num_submitted += 1
        prompt = arrival.prompt(self._engine.executor.spec.vocab_size, seed)
        params = SamplingParams(
            temperature=0, max_tokens=arrival.num_output_tokens, ignore_eos=True
        )
        request = self._engine.submit(prompt, params)
        served = Served(arrival_s=arrival.at_s, num_input_tokens=len(prompt))
        self.served.append(served)
        self._live[request.id] = (request, served)

    def _run_step(self) -> None:
        outputs = self._engine.step()
        now_s = self.now_s
        for output in outputs:
            request, served = self._live[output.request.id]
            if output.token_ids:
                served.token_times.append(now_s)
                served.num_tokens += len(output.token_ids)
            if output.finish_reason is not None:
                served.failure = output.error
                served.num_cached_tokens = request.num_cached_tokens
                first_s = request.first_step_s
                served.first_step_s = now_s if first_s is None else first_s - self._start_s
                del self._live[request.id]
                self.num_ended += 1
        scheduler = self._engine.scheduler
        num_held = scheduler.pool.num_pages - scheduler.pool.num_free
        self.moments.append(
            Moment(
                now_s,
                scheduler.num_waiting,
                len(scheduler.running),
                num_held / scheduler.pool.num_pages,
            )
        )


def _speculation_counts(engine: Engine) -> tuple[int, int]:
    if engine.speculator is None:
        return 0, 0
    stats = engine.speculator.stats
    return sum(stats.num_proposed), sum(stats.num_accepted)

"""Workload: requests and their arrival times. Each iteration yields the same ones.

Poisson    times between arrivals are exponential: requests are independent
gamma      the same mean with a larger standard deviation (`burstiness` times the mean), so that
           arrivals come in clusters
on-off     Poisson in bursts: for a share of the time at a higher rate, then nothing
trace      as recorded, with shared prefixes
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from paredown.errors import ConfigError
from paredown.evaluate.load.arrival import BLOCK_TOKENS, Arrival
from paredown.plan.lengths import Lengths
from paredown.plan.trace import Trace
from paredown.spec.kv import PAGE_SIZE

# Below one request in eleven days the load is empty, and times would lose their digits.
MIN_REQUESTS_PER_S, MAX_REQUESTS_PER_S = 1e-6, 1e7
MAX_REQUESTS = 100_000_000
# Below it all requests come at equal distances, as far as numbers tell.
MIN_BURSTINESS, MAX_BURSTINESS = 1e-6, 100.0
# The least number of bursts. With a single one the load would have no counted pause.
_MIN_PERIODS = 2
_PAGES_PER_BLOCK = BLOCK_TOKENS // PAGE_SIZE


@dataclass(slots=True)
class SimulatedRequest:
    """`page_contents` identifies the contents of the prompt's full pages, as far as others may
    share them. Two requests with the same `identity` ask the same."""

    time_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    page_contents: Sequence[int] = ()
    identity: tuple[int, ...] | None = None


class Workload(Protocol):
    """Requests in order of time, the same in every iteration."""

    @property
    def num_requests(self) -> int: ...

    @property
    def duration_s(self) -> float:
        """The approximate time of the arrivals."""
        ...

    @property
    def shares_prefixes(self) -> bool:
        """Whether any two prompts begin with the same page."""
        ...

    def __iter__(self) -> Iterator[SimulatedRequest]: ...


class LengthSource(Protocol):
    """Draws the tokens of a prompt and of its answer."""

    def draw(self, rng: random.Random, /) -> tuple[int, int]: ...


@dataclass(frozen=True, kw_only=True)
class DrawnLengths:
    """Draws prompt and answer independently."""

    prompt: Lengths
    output: Lengths

    def draw(self, rng: random.Random) -> tuple[int, int]:
        return self.prompt.draw(rng), self.output.draw(rng)


@dataclass(frozen=True, kw_only=True)
class TraceLengths:
    """Draws the lengths of a random request of a trace."""

    trace: Trace

    def draw(self, rng: random.Random) -> tuple[int, int]:
        one = self.trace.requests[int(rng.random() * len(self.trace.requests))]
        return one.num_input_tokens, one.num_output_tokens


def check_rate(requests_per_s: float) -> None:
    """Raises ConfigError for a rate out of range."""
    if not MIN_REQUESTS_PER_S <= requests_per_s <= MAX_REQUESTS_PER_S:
        raise ConfigError(
            "the load is out of range",
            seen=f"{requests_per_s:g} requests per second",
            remedy=f"Use {MIN_REQUESTS_PER_S:g} to {MAX_REQUESTS_PER_S:g}.",
        )


@dataclass(frozen=True, kw_only=True)
class RandomWorkload:
    """`burstiness` is the standard deviation of the time between arrivals over its mean; 1 is
    Poisson. With `on_share` < 1 requests arrive only in the first such share of each `period_s`,
    at a rate that gives the same mean. Raises ConfigError."""

    requests_per_s: float
    num_requests: int
    lengths: LengthSource
    burstiness: float = 1.0
    on_share: float = 1.0
    period_s: float = 60.0
    seed: int = 0

    shares_prefixes = False

    def __post_init__(self) -> None:
        check_rate(self.requests_per_s)
        for name, value, low, high in (
            ("the number of requests", self.num_requests, 0, MAX_REQUESTS),
            ("the burstiness", self.burstiness, MIN_BURSTINESS, MAX_BURSTINESS),
            ("the share of time with arrivals", self.on_share, 0.0, 1.0),
            ("the period of bursts in seconds", self.period_s, 0.0, 1e6),
        ):
            if not low < value <= high:
                raise ConfigError(
                    f"{name} is out of range",
                    seen=value,
                    remedy=f"Use more than {low:g} and at most {high:g}.",
                )
        if self.on_share < 1 and self.duration_s < _MIN_PERIODS * self.period_s:
            wanted = math.ceil(_MIN_PERIODS * self.period_s * self.requests_per_s)
            raise ConfigError(
                "these requests are too few for bursts: all would come in one, at another rate",
                seen=f"{self.num_requests:,} requests in {self.duration_s:.3g} s, a burst each "
                f"{self.period_s:g} s",
                remedy=f"Use at least {wanted:,} requests, or leave out the share of time.",
            )

    @property
    def duration_s(self) -> float:
        return self.num_requests / self.requests_per_s

    def __iter__(self) -> Iterator[SimulatedRequest]:
        rng, draw = random.Random(self.seed), self.lengths.draw
        times = self._times(random.Random(self.seed + 1))
        for _ in range(self.num_requests):
            num_prompt_tokens, num_output_tokens = draw(rng)
            yield SimulatedRequest(next(times), num_prompt_tokens, num_output_tokens)

    def _times(self, rng: random.Random) -> Iterator[float]:
        """Draws from a gamma distribution of shape 1 / burstiness^2 (shape 1 is the exponential
        one), then inserts the time without arrivals."""
        shape = 1 / self.burstiness**2
        scale = self.on_share / (shape * self.requests_per_s)
        on_s, off_s = self.on_share * self.period_s, (1 - self.on_share) * self.period_s
        time_s = 0.0
        while True:
            if shape == 1:
                time_s -= scale * math.log(1.0 - rng.random())
            else:
                time_s += rng.gammavariate(shape, scale)
            yield time_s + off_s * (time_s // on_s) if off_s else time_s


@dataclass(frozen=True, kw_only=True)
class TraceWorkload:
    """Repeats the trace `num_rounds` times. Prompts of different rounds share nothing: they stand
    for other users on another day."""

    trace: Trace
    num_rounds: int = 1

    @property
    def num_requests(self) -> int:
        return self.num_rounds * len(self.trace.requests)

    @property
    def duration_s(self) -> float:
        return self.num_rounds * self._round_s

    @property
    def shares_prefixes(self) -> bool:
        return self.trace.shares_prefixes

    def __iter__(self) -> Iterator[SimulatedRequest]:
        requests = self.trace.requests
        num_blocks = 1 + max((max(one.block_ids, default=-1) for one in requests), default=-1)
        for number in range(self.num_rounds):
            for one in requests:
                time_s = number * self._round_s + one.at_s
                yield simulated_request(one, time_s, number * num_blocks)

    @property
    def _round_s(self) -> float:
        """The time at which the next request could have arrived."""
        return self.trace.duration_s * (1 + 1 / (len(self.trace.requests) - 1))


def simulated_request(arrival: Arrival, time_s: float, first_block: int = 0) -> SimulatedRequest:
    """Numbers each full page of the prompt, from the numbers of its blocks."""
    ids, num_pages = arrival.block_ids, arrival.num_input_tokens // PAGE_SIZE
    contents = [
        (first_block + ids[page // _PAGES_PER_BLOCK]) * _PAGES_PER_BLOCK + page % _PAGES_PER_BLOCK
        for page in range(num_pages if ids else 0)
    ]
    identity = (first_block, arrival.num_input_tokens, *ids) if ids else None
    return SimulatedRequest(
        time_s, arrival.num_input_tokens, arrival.num_output_tokens, contents, identity
    )

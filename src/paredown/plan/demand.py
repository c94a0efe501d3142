"""Demand: the load that machines are planned for, and the limits on latency."""

import random
from dataclasses import dataclass

from paredown.errors import CapacityError
from paredown.plan.response_cache import ResponseCacheConfig
from paredown.plan.routers import RouterName
from paredown.plan.simulation import LatencyLimits
from paredown.plan.trace import Trace
from paredown.plan.workload import (
    LengthSource,
    RandomWorkload,
    TraceWorkload,
    Workload,
    check_rate,
)

# The tolerated share of requests longer than the context, which count as late.
_MAX_TOO_LONG = 0.05
_NUM_DRAWN = 2000
# The most requests of a trace that are simulated; Mooncake's prompts have 750 pages each.
_MAX_TRACE_REQUESTS = 4000


@dataclass(frozen=True, kw_only=True)
class Demand:
    """`requests_per_s` arrive at the response cache, which answers `hit_rate` of them. `trace`, if
    given, determines when they arrive and which prefixes they share. Otherwise they arrive at
    random; `burstiness` is the standard deviation of the time between them over its mean. Raises
    ConfigError."""

    requests_per_s: float
    lengths: LengthSource
    limits: LatencyLimits
    hit_rate: float = 0.0
    burstiness: float = 1.0
    trace: Trace | None = None
    router: RouterName = "least-loaded"
    seed: int = 0

    def __post_init__(self) -> None:
        check_rate(self.requests_per_s)
        ResponseCacheConfig(hit_rate=self.hit_rate)

    @property
    def computed_per_s(self) -> float:
        """The requests per second that reach a machine."""
        return self.requests_per_s * (1 - self.hit_rate)

    def random_workload(self, requests_per_s: float, num_requests: int) -> Workload:
        """Returns requests of the same lengths at another rate, without the trace's times."""
        return RandomWorkload(
            requests_per_s=requests_per_s,
            num_requests=num_requests,
            lengths=self.lengths,
            burstiness=self.burstiness,
            seed=self.seed,
        )

    def workload(self, requests_per_s: float, num_requests: int) -> Workload:
        """Returns the requests that reach machines, at another rate."""
        if self.trace is None:
            return self.random_workload(requests_per_s, num_requests)
        part = self.trace.first(min(num_requests, _MAX_TRACE_REQUESTS)).at_rate(requests_per_s)
        return TraceWorkload(trace=part, num_rounds=-(-num_requests // len(part.requests)))

    @property
    def shares_prefixes(self) -> bool:
        """Whether the shared prefixes of prompts are known."""
        return self.trace is not None and self.trace.shares_prefixes

    @property
    def new_share(self) -> float:
        """The share of prompt tokens that even an unlimited prefix cache would miss."""
        return 1.0 if self.trace is None else self.trace.first(_MAX_TRACE_REQUESTS).new_share

    def mean_tokens(self, max_tokens: int) -> tuple[float, float]:
        """Returns the mean tokens of a prompt and of an answer, both together cut to `max_tokens`.
        Raises CapacityError if too many prompts are longer."""
        rng = random.Random(self.seed)
        drawn = [self.lengths.draw(rng) for _ in range(_NUM_DRAWN)]
        fitting = [(prompt, output) for prompt, output in drawn if prompt < max_tokens]
        share = 1 - len(fitting) / len(drawn)
        if share > _MAX_TOO_LONG:
            longest = max(prompt for prompt, _ in drawn)
            raise CapacityError(
                f"{share:.0%} of the prompts are longer than the model and its memory allow",
                seen=f"prompts of up to {longest:,} tokens; room for {max_tokens:,}",
                remedy="Use shorter prompts, a model with a longer context, or a machine with more "
                "memory.",
            )
        outputs = (min(output, max_tokens - prompt) for prompt, output in fitting)
        return (
            sum(prompt for prompt, _ in fitting) / len(fitting),
            sum(outputs) / len(fitting),
        )

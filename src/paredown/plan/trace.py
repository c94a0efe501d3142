"""Trace: recorded requests of a real service, with times and shared prefixes, at any rate."""

from dataclasses import dataclass, replace
from pathlib import Path

from paredown.errors import ConfigError
from paredown.evaluate.load.arrival import BLOCK_TOKENS, Arrival
from paredown.evaluate.load.trace_file import read_trace


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests in order of arrival, the first at 0 s."""

    name: str
    requests: tuple[Arrival, ...]

    @property
    def duration_s(self) -> float:
        """The time from the first request to the last."""
        return self.requests[-1].at_s

    @property
    def requests_per_s(self) -> float:
        return (len(self.requests) - 1) / self.duration_s

    def part(self, *, start_s: float = 0.0, seconds: float | None = None) -> "Trace":
        """Returns the requests of a stretch of time; the first then arrives at 0 s. Raises
        ConfigError for fewer than two."""
        end_s = float("inf") if seconds is None else start_s + seconds
        chosen = [one for one in self.requests if start_s <= one.at_s < end_s]
        if len(chosen) < 2:
            raise ConfigError(
                "there are too few requests in this part of the trace",
                seen=f"{len(chosen)} from {start_s:g} s to {end_s:g} s of {self.duration_s:g} s",
                remedy="Choose another part.",
            )
        return self._with(chosen)

    @property
    def shares_prefixes(self) -> bool:
        """Whether it records what any prompts begin with."""
        return any(one.block_ids for one in self.requests)

    @property
    def new_share(self) -> float:
        """The share of prompt tokens in blocks that no earlier request had: what an unlimited
        cache still has to compute."""
        seen: set[int] = set()
        num_new = 0
        for one in self.requests:
            known = sum(block in seen for block in one.block_ids)
            num_new += max(one.num_input_tokens - known * BLOCK_TOKENS, 0)
            seen.update(one.block_ids)
        return num_new / sum(one.num_input_tokens for one in self.requests)

    def first(self, num_requests: int) -> "Trace":
        return replace(self, requests=self.requests[:num_requests])

    def at_rate(self, requests_per_s: float) -> "Trace":
        """Returns the same requests, faster or slower."""
        factor = self.requests_per_s / requests_per_s
        return self._with([replace(one, at_s=one.at_s * factor) for one in self.requests])

    def _with(self, requests: list[Arrival]) -> "Trace":
        first_s = requests[0].at_s
        moved = tuple(replace(one, at_s=one.at_s - first_s) for one in requests)
        return replace(self, requests=moved)


def open_trace(path: Path) -> Trace:
    """Reads a trace of Azure, Splitwise or Mooncake. Raises ConfigError, with the line, for a bad
    file, and where fewer than two requests arrive or all at once."""
    requests = tuple(read_trace(path))
    if not requests[-1].at_s:
        raise ConfigError(
            "all requests of the trace come at once",
            seen=f"{path}: {len(requests)} at one time",
            remedy="Give a trace with times; without one requests come at random.",
        )
    return Trace(name=path.stem, requests=requests)

"""Formats the measurements of a server under attack as a table and a section of a page."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.attack_cases import NUM_CLIENTS
from benchmarks.real.row import Row, Section
from paredown.units import format_bytes

MAX_RATIO = 3.0
MAX_HEALTH_S = 0.1
MAX_MEMORY_RATIO = 1.1


@dataclass(kw_only=True)
class Found:
    """The measurements of one case. `num_failed` completions did not return 200."""

    case: str
    what: str
    alone_s: list[float] = field(default_factory=list)
    attacked_s: list[float] = field(default_factory=list)
    health_s: list[float] = field(default_factory=list)
    num_failed: int = 0
    num_unhealthy: int = 0
    before_bytes: int = 0
    peak_bytes: int = 0
    after_bytes: int = 0
    log_bytes: int = 0
    is_alive: bool = True

    @property
    def ratio(self) -> float:
        """Returns the median under attack over the median alone; infinite if none was answered."""
        if not self.alone_s or not self.attacked_s or self.num_failed >= len(self.attacked_s):
            return float("inf")
        return statistics.median(self.attacked_s) / statistics.median(self.alone_s)

    @property
    def max_health_s(self) -> float:
        failed = self.num_unhealthy or not self.health_s
        return float("inf") if failed else max(self.health_s)

    @property
    def memory_ratio(self) -> float:
        return self.after_bytes / max(self.before_bytes, 1)

    @property
    def is_met(self) -> bool:
        return (
            self.is_alive
            and self.ratio <= MAX_RATIO
            and self.max_health_s <= MAX_HEALTH_S
            and self.memory_ratio <= MAX_MEMORY_RATIO
        )


def percentile(seconds: Sequence[float], share: float) -> float:
    """Returns the smallest value that is not below `share` of all values."""
    if not seconds:
        return float("inf")
    ordered = sorted(seconds)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def table(all_found: Sequence[Found]) -> str:
    """Returns a table with lines of at most 100 characters."""
    heading = (
        "case",
        "alone",
        "median",
        "p95",
        "ratio",
        "/health",
        "memory",
        "peak",
        "after",
        "log",
        "",
    )
    lines = [heading]
    for one in all_found:
        lines.append(
            (
                one.case,
                _ms(percentile(one.alone_s, 0.5)),
                _ms(percentile(one.attacked_s, 0.5)),
                _ms(percentile(one.attacked_s, 0.95)),
                f"{one.ratio:.2f}",
                _ms(one.max_health_s),
                format_bytes(one.before_bytes),
                format_bytes(one.peak_bytes),
                f"{one.memory_ratio:.2f}",
                format_bytes(one.log_bytes),
                "met" if one.is_met else "not met" if one.is_alive else "dead",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def section(one: Found, seconds: float) -> Section:
    return Section(
        title=f"{one.case}: {one.what}",
        protocol=f"{seconds:.0f} s alone, then as many under attack by {NUM_CLIENTS} clients. "
        f"The log grew to {format_bytes(one.log_bytes)}.",
        rows=[
            Row(
                name="a completion of another client",
                asked=f"at most {MAX_RATIO:.0f}x as long as alone",
                found=f"{_ms(percentile(one.alone_s, 0.5))} alone, "
                f"{_ms(percentile(one.attacked_s, 0.5))} under attack "
                f"(p95 {_ms(percentile(one.attacked_s, 0.95))}): {one.ratio:.2f}x; "
                f"{one.num_failed} of {len(one.attacked_s)} failed",
                meets=one.is_alive and one.ratio <= MAX_RATIO,
                decides=True,
            ),
            Row(
                name="/health, the longest",
                asked=f"at most {_ms(MAX_HEALTH_S)}",
                found=f"{_ms(one.max_health_s)}; {one.num_unhealthy} of {len(one.health_s)} failed",
                meets=one.max_health_s <= MAX_HEALTH_S,
                decides=True,
            ),
            Row(
                name="memory afterwards",
                asked=f"at most {MAX_MEMORY_RATIO:.1f}x of before",
                found=f"{format_bytes(one.before_bytes)} before, {format_bytes(one.peak_bytes)} at "
                f"most, {format_bytes(one.after_bytes)} after: {one.memory_ratio:.2f}x",
                meets=one.is_alive and one.memory_ratio <= MAX_MEMORY_RATIO,
                decides=True,
            ),
        ],
    )


def _ms(seconds: float) -> str:
    return "-" if seconds == float("inf") else f"{seconds * 1e3:,.1f} ms"

"""SLO: the latency limits that an answer must meet to count (goodput; Zhong et al., DistServe,
2024)."""

import math
import re
from dataclasses import dataclass, fields

from paredown.errors import ConfigError
from paredown.evaluate.load.run_load import Served
from paredown.shown import quoted

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, kw_only=True)
class SLO:
    """Limits in seconds, None for no limit: to the first token, per token after it, for every gap
    between tokens, to the last token."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    itl_s: float | None = None
    e2e_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> "SLO":
        """Parses "ttft=0.5s,tpot=50ms". Raises ConfigError."""
        limits: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            field = f"{name.strip()}_s"
            if field not in {one.name for one in fields(cls)} or field in limits:
                raise ConfigError(
                    "the limit of latency is unknown or given twice",
                    seen=quoted(part),
                    remedy="Write ttft=0.5s,tpot=50ms; there are ttft, tpot, itl and e2e.",
                )
            limits[field] = _seconds(value)
        return cls(**limits)

    def is_met(self, one: Served) -> bool:
        """Returns whether an answer meets all limits; a failed one meets none."""
        if one.failure is not None or not one.token_times:
            return False
        seen = (
            (self.ttft_s, one.ttft_s),
            (self.tpot_s, one.tpot_s or 0.0),
            (self.itl_s, max(one.itl_s, default=0.0)),
            (self.e2e_s, one.e2e_s),
        )
        return all(limit is None or value <= limit for limit, value in seen)

    def __str__(self) -> str:
        limits = {one.name.removesuffix("_s"): getattr(self, one.name) for one in fields(self)}
        return ", ".join(f"{name} {1e3 * s:g} ms" for name, s in limits.items() if s is not None)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9.]+) ?(us|ms|s)", text.strip())
    try:
        seconds = float(match[1]) * _UNITS[match[2]] if match else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ConfigError(
            "this is not a latency limit", seen=quoted(text), remedy="Write 0.5s, 50ms or 800us."
        )
    return seconds

"""RequestRate: the times at which requests may start."""

import math

from paredown.errors import ConfigError


class RequestRate:
    """Spreads requests evenly: at most `per_minute` start in any 60 seconds. None has no limit."""

    def __init__(self, per_minute: float | None) -> None:
        if per_minute is not None and not 0 < per_minute < math.inf:
            raise ConfigError(
                "no request may ever start",
                seen=per_minute,
                remedy="Give --requests-per-minute more than 0.",
            )
        self._gap_s = 0.0 if per_minute is None else 60.0 / per_minute
        self._next_s = -math.inf

    def wait_s(self, now_s: float) -> float:
        """Returns how long the next request has to wait, and takes that place."""
        start_s = max(now_s, self._next_s)
        self._next_s = start_s + self._gap_s
        return start_s - now_s

    def pause(self, now_s: float, for_s: float) -> None:
        """Lets no request start for so long."""
        self._next_s = max(self._next_s, now_s + for_s)

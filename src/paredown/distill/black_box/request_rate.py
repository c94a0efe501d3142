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
        self._paused_until_s = -math.inf

    def take_turn(self, now_s: float) -> float:
        """Returns when the next request may start."""
        turn_s = max(now_s, self._next_s)
        self._next_s = turn_s + self._gap_s
        return turn_s

    def is_held(self, turn_s: float) -> bool:
        """Returns whether a pause that was asked for since has put off that turn."""
        return turn_s < self._paused_until_s

    def pause(self, now_s: float, for_s: float) -> None:
        """Lets no request start for so long; those that have a turn in that time take another."""
        self._paused_until_s = max(self._paused_until_s, now_s + for_s)
        self._next_s = max(self._next_s, self._paused_until_s)

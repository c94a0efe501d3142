"""Deadline: how long a search may take, and what is still worth starting."""

import time
from collections.abc import Callable

from paredown.errors import ConfigError

# The share of the time reserved for measuring the chosen candidate again and writing it.
_RESERVED = 0.12


class OutOfTimeError(Exception):
    """Work that was started did not finish in time."""


class Deadline:
    """`minutes` None means no deadline. `clock` returns seconds."""

    def __init__(self, minutes: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        if minutes is not None and not 0 < minutes < float("inf"):
            raise ConfigError(
                "--minutes must be more than none", seen=minutes, remedy="Give 10, for one."
            )
        self.minutes = minutes
        self._clock = clock
        self._started = clock()

    @property
    def left_s(self) -> float:
        """The seconds until nothing new is started."""
        if self.minutes is None:
            return float("inf")
        return self.minutes * 60 * (1 - _RESERVED) - (self._clock() - self._started)

    def allows(self, estimated_s: float) -> bool:
        return estimated_s <= self.left_s

    def check(self) -> None:
        """Raises OutOfTimeError if no time is left."""
        if self.left_s <= 0:
            raise OutOfTimeError

"""The clocks that benchmarks measure with."""

import time
from collections.abc import Callable
from typing import Literal

from paredown.errors import ConfigError
from paredown.kernels.probe import default_num_threads

Clock = Literal["wall", "cpu"]
# "cpu": processor time of the own process, for a machine that others use at the same time.
CLOCKS: dict[Clock, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def num_threads_of(asked: int | None, clock: Clock) -> int:
    """Returns the threads of an engine. Processor seconds add up those of all threads, so they are
    of one thread. Raises ConfigError for another number."""
    if clock == "wall":
        return asked or default_num_threads()
    if asked not in (None, 1):
        raise ConfigError(
            "processor seconds are those of one thread", seen=asked, remedy="Use --threads 1."
        )
    return 1

"""Time that passes only when somebody sleeps: what takes how long is then known to the digit."""

import time

import pytest


class VirtualClock:
    """In the place of the process's clocks, from the time of `start_s` on."""

    def __init__(self, patch: pytest.MonkeyPatch, start_s: float = 1000.0) -> None:
        self.now_s = start_s
        for name in ("monotonic", "perf_counter"):
            patch.setattr(time, name, lambda: self.now_s)
        patch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds

"""A clock that advances only when somebody sleeps, so that all times are known exactly."""

import time

import pytest


class VirtualClock:
    """Replaces the process's clocks, starting at `start_s`."""

    def __init__(self, patch: pytest.MonkeyPatch, start_s: float = 1000.0) -> None:
        self.now_s = start_s
        for name in ("monotonic", "perf_counter"):
            patch.setattr(time, name, lambda: self.now_s)
        patch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds

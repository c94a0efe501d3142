"""Gauges of how much of the machine the model used in the last seconds: MBU and MFU."""

import time

from paredown.cost.step_sums import RoofTimes, StepSums, Utilization
from paredown.serve.watch.metric import Metric, gauge

# The steps of at least so many seconds are looked at, of at most twice as many.
PERIOD_S = 15.0


class UtilizationGauges:
    """`roofs` is None until the model is loaded, and stays None on a machine that was not
    measured. Belongs to one event loop."""

    def __init__(self) -> None:
        self.roofs: RoofTimes | None = None
        # The sums at two earlier moments, the older one first.
        self._older = self._newer = StepSums()
        self._newer_s = time.monotonic()

    def gauges(self, sums: StepSums) -> list[Metric]:
        """Returns both gauges, or none where the roofs are not known."""
        if self.roofs is None:
            return []
        now_s = time.monotonic()
        if now_s - self._newer_s >= PERIOD_S:
            self._older, self._newer, self._newer_s = self._newer, sums, now_s
        latest = sums.since(self._older)
        if latest.seconds <= 0 or not latest.num_tokens:
            return utilization_metrics(Utilization(memory=0.0, arithmetic=0.0))
        return utilization_metrics(self.roofs.utilization(latest))


def utilization_metrics(used: Utilization) -> list[Metric]:
    return [
        gauge("mbu", "Share of the memory bandwidth that steps used, lately.", used.memory),
        gauge("mfu", "Share of the arithmetic that steps used, lately.", used.arithmetic),
    ]

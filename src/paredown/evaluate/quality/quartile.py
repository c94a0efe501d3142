"""The statistic for times that other programs may have disturbed."""

from collections.abc import Sequence


def lower_quartile(values: Sequence[float]) -> float:
    """Returns the first quartile. Disturbances only add time, so a low quantile is closest to the
    truth, and neither an interrupted nor a lucky run moves it."""
    return sorted(values)[(len(values) - 1) // 4]

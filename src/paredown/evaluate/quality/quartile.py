"""The statistic of times that others may have been in the way of."""

from collections.abc import Sequence


def lower_quartile(values: Sequence[float]) -> float:
    """What is in the way only ever adds to a time: a quarter of the values is no larger than
    this, so that neither an interrupted run nor a lucky one moves it."""
    return sorted(values)[(len(values) - 1) // 4]

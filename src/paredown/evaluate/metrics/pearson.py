"""Pearson correlation: how well a line fits pairs of numbers. N pairs."""

import math

import numpy as np
from numpy.typing import NDArray


def pearson(x_N: NDArray[np.floating], y_N: NDArray[np.floating]) -> float:
    """Returns the correlation, from -1 to 1; NaN where one side has no spread, fewer than two
    numbers, or one that is not finite."""
    assert x_N.shape == y_N.shape
    if x_N.size < 2 or not (np.isfinite(x_N).all() and np.isfinite(y_N).all()):
        return math.nan
    if x_N.min() == x_N.max() or y_N.min() == y_N.max():
        return math.nan
    together = float(_unit(x_N.astype(np.float64)) @ _unit(y_N.astype(np.float64)))
    return max(-1.0, min(1.0, together))


def _unit(x_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the distances from the mean, as a vector of length 1. Dividing first keeps the
    squares of very large and very small numbers in range."""
    away_N = x_N - x_N.mean()
    away_N = away_N / np.abs(away_N).max()
    unit_N: NDArray[np.float64] = away_N / np.linalg.norm(away_N)
    return unit_N

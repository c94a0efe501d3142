"""Spearman correlation: whether two lists of numbers order things alike (Spearman 1904). N pairs, K
distinct numbers."""

import numpy as np
from numpy.typing import NDArray

from paredown.evaluate.metrics.pearson import pearson


def spearman(x_N: NDArray[np.floating], y_N: NDArray[np.floating]) -> float:
    """Returns the Pearson correlation of the ranks, from -1 to 1; NaN where one side has no spread,
    fewer than two numbers, or a NaN."""
    assert x_N.shape == y_N.shape
    if np.isnan(x_N).any() or np.isnan(y_N).any():
        return float("nan")
    return pearson(average_ranks(x_N), average_ranks(y_N))


def average_ranks(x_N: NDArray[np.floating]) -> NDArray[np.float64]:
    """Returns the rank of each number, from 1; equal ones share the mean of their ranks."""
    _, kinds_N, counts_K = np.unique(x_N, return_inverse=True, return_counts=True)
    ends_K = np.cumsum(counts_K)
    ranks_K = ends_K - (counts_K - 1) / 2
    ranks_N: NDArray[np.float64] = ranks_K[kinds_N]
    return ranks_N

"""Accuracy: the share of answers that are right. N answers."""

import numpy as np
from numpy.typing import NDArray


def accuracy(predicted_N: NDArray[np.integer], expected_N: NDArray[np.integer]) -> float:
    """Returns the share of labels that are alike, from 0 to 1."""
    assert predicted_N.shape == expected_N.shape
    assert predicted_N.size, "nothing was answered"
    return float(np.mean(predicted_N == expected_N))

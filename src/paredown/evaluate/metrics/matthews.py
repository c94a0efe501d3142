"""Matthews correlation of labels: 1 for all right, 0 for chance (Matthews 1975; for more than two
labels Gorodkin 2004). N answers, K labels."""

import math

import numpy as np
from numpy.typing import NDArray


def matthews(predicted_N: NDArray[np.integer], expected_N: NDArray[np.integer]) -> float:
    """Returns the correlation, from -1 to 1; 0 where all answers or all expectations are alike."""
    assert predicted_N.shape == expected_N.shape
    num_answers = predicted_N.size
    labels_K = np.union1d(predicted_N, expected_N)
    # Integers of Python do not overflow, however many answers there are.
    predicted = [int(np.sum(predicted_N == label)) for label in labels_K]
    expected = [int(np.sum(expected_N == label)) for label in labels_K]
    num_right = int(np.sum(predicted_N == expected_N))
    together = sum(one * other for one, other in zip(predicted, expected, strict=True))
    spread_predicted = num_answers**2 - sum(count**2 for count in predicted)
    spread_expected = num_answers**2 - sum(count**2 for count in expected)
    if not spread_predicted or not spread_expected:
        return 0.0
    spread = math.sqrt(spread_predicted) * math.sqrt(spread_expected)
    return (num_right * num_answers - together) / spread

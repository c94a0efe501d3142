"""F1: the harmonic mean of precision and recall of one label (van Rijsbergen 1979). N answers."""

import numpy as np
from numpy.typing import NDArray


def f1(
    predicted_N: NDArray[np.integer], expected_N: NDArray[np.integer], positive: int = 1
) -> float:
    """Returns F1 of the label `positive`, from 0 to 1; 0 where it is neither expected nor
    predicted."""
    assert predicted_N.shape == expected_N.shape
    is_predicted_N, is_expected_N = predicted_N == positive, expected_N == positive
    num_both = int(np.sum(is_predicted_N & is_expected_N))
    num_either = int(np.sum(is_predicted_N)) + int(np.sum(is_expected_N))
    return 2 * num_both / num_either if num_either else 0.0

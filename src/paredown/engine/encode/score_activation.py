"""Activations that logits pass before they are scores.

Letters: N texts, L labels.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from paredown.models.encoder_settings import ScoreActivation

Numbers = npt.NDArray[np.float32]


def sigmoid(logits_NL: Numbers) -> Numbers:
    """Returns 1 / (1 + exp(-x)), without overflow."""
    small_NL = np.exp(-np.abs(logits_NL))
    found: Numbers = np.where(logits_NL >= 0, 1, small_NL) / (1 + small_NL)
    return found.astype(np.float32)


def softmax(logits_NL: Numbers) -> Numbers:
    """Returns the share of each label."""
    shares_NL = np.exp(logits_NL - logits_NL.max(axis=1, keepdims=True))
    found: Numbers = shares_NL / shares_NL.sum(axis=1, keepdims=True)
    return found


def _identity(logits_NL: Numbers) -> Numbers:
    return logits_NL


ACTIVATIONS: Mapping[ScoreActivation, Callable[[Numbers], Numbers]] = {
    "identity": _identity,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "softmax": softmax,
}

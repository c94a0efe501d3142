"""Perplexity and bits per byte: how well a model predicts a text (protocol:
evaluate/texts/text.py).

With NLL the sum of -ln p(token) over the N predicted tokens, which decode to B bytes of UTF-8:
perplexity = exp(NLL / N), bits per byte = NLL / (B ln 2).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from paredown.evaluate.quality.rows import Logits, over_rows


def log_normalizers(logits_TV: Logits) -> npt.NDArray[np.float64]:
    """Returns the log-sum-exp of each row. Exponentials are float32 after subtracting the row's
    largest logit; sums are float64: exact to about 1e-7."""
    normalizers_T = np.empty(len(logits_TV))

    def add_up(stretches: Sequence[slice], shape: tuple[int, int]) -> None:
        exponentials_TV = np.empty(shape, np.float32)
        for rows in stretches:
            exponentials = exponentials_TV[: rows.stop - rows.start]
            largest_T = logits_TV[rows].max(axis=1)
            np.subtract(logits_TV[rows], largest_T[:, None], out=exponentials)
            np.exp(exponentials, out=exponentials)
            sums_T = exponentials.sum(axis=1, dtype=np.float64)
            normalizers_T[rows] = largest_T.astype(np.float64) + np.log(sums_T)

    over_rows(add_up, logits_TV)
    return normalizers_T


@dataclass(frozen=True)
class Predictions:
    """Rows of logits with their log-normalizers; ln p is the difference."""

    logits_TV: Logits
    normalizers_T: npt.NDArray[np.float64]

    @classmethod
    def of(cls, logits_TV: Logits) -> "Predictions":
        return cls(logits_TV, log_normalizers(logits_TV))

    @cached_property
    def most_likely(self) -> npt.NDArray[np.intp]:
        """Returns the token of each row's largest logit, the first among equals."""
        tokens_T: npt.NDArray[np.intp] = self.logits_TV.argmax(axis=1)
        return tokens_T


def negative_log_likelihoods(
    predictions: Predictions, targets: list[int]
) -> npt.NDArray[np.float64]:
    """Returns -ln p of each row's target, in nats."""
    chosen_T = predictions.logits_TV[np.arange(len(targets)), targets].astype(np.float64)
    nll_T: npt.NDArray[np.float64] = predictions.normalizers_T - chosen_T
    return nll_T


def perplexity(nll_sum: float, num_tokens: int) -> float:
    """Returns the perplexity: infinite where it exceeds a float, and NaN where the sum is NaN."""
    mean = nll_sum / num_tokens
    return math.inf if mean >= 700 else math.exp(mean)


def bits_per_byte(nll_sum: float, num_bytes: int) -> float:
    return nll_sum / math.log(2) / num_bytes

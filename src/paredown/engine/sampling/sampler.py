"""Sampler: from one row of logits to one token.

Everything here sees a single row, so that a request's tokens cannot depend on its neighbours. The
random draw is counter-based (Philox, Salmon et al., SC 2011): it is a function of the request's
seed and the position alone, whatever was computed before it, in whatever order.
V: vocabulary.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paredown.engine.sampling.sampling_params import SamplingParams


class TokenLogprob(NamedTuple):
    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural log-probabilities under the raw logits (temperature and truncation not applied)."""

    chosen: TokenLogprob
    top: list[TokenLogprob]


class NonFiniteLogitsError(ArithmeticError):
    """The model gave NaN or infinity where a logit belongs."""


def sample_token(
    logits_V: npt.NDArray[np.float32], params: SamplingParams, *, seed: int, position: int
) -> int:
    """The token that stands at `position`. Ties go to the smaller id.

    Raises NonFiniteLogitsError when the largest logit is not a finite number.
    """
    best = int(logits_V.argmax())
    # argmax finds a NaN when there is one, so this one look covers the row.
    if not math.isfinite(logits_V[best]):
        raise NonFiniteLogitsError(f"the largest logit is {logits_V[best]}")
    if params.temperature == 0 or params.top_k == 1:
        return best
    ids, probs = distribution(logits_V, params)
    cumulative = probs.cumsum()
    drawn = _uniform(seed, position) * cumulative[-1]
    index = min(int(cumulative.searchsorted(drawn, side="right")), len(probs) - 1)
    return index if ids is None else int(ids[index])


def distribution(
    logits_V: npt.NDArray[np.float32], params: SamplingParams
) -> tuple[npt.NDArray[np.intp] | None, npt.NDArray[np.float64]]:
    """The candidates (None: every token, by id) and their weights, which need not sum to 1.

    In this order: temperature, then the `top_k` largest, then the smallest set of those, largest
    first, whose probability reaches `top_p`.
    """
    scaled_V = logits_V.astype(np.float64)
    scaled_V -= scaled_V.max()
    with np.errstate(over="ignore"):  # a tiny temperature: minus infinity, so probability 0
        scaled_V /= params.temperature
    probs_V = np.exp(scaled_V)
    vocab_size = len(probs_V)
    num_kept = min(params.top_k or vocab_size, vocab_size)
    if num_kept == vocab_size and params.top_p == 1:
        return None, probs_V
    # Values are sorted, not indices: several times faster, and a threshold is all that is needed.
    largest = np.partition(probs_V, vocab_size - num_kept)[vocab_size - num_kept :]
    descending = np.sort(largest)[::-1]
    if params.top_p < 1:
        cumulative = descending.cumsum()
        reached = cumulative.searchsorted(params.top_p * cumulative[-1], side="left")
        num_kept = min(int(reached) + 1, num_kept)
    ids = _at_least(probs_V, descending[num_kept - 1], num_kept)
    return ids, probs_V[ids]


def compute_logprobs(logits_V: npt.NDArray[np.float32], token_id: int, num_top: int) -> Logprobs:
    """The chosen token's log-probability and the `num_top` largest, in float64."""
    wide_V = logits_V.astype(np.float64)
    largest = wide_V.max()
    normalizer = largest + math.log(np.exp(wide_V - largest).sum())
    top_ids = _largest(wide_V, min(num_top, len(wide_V))) if num_top else ()
    return Logprobs(
        chosen=TokenLogprob(token_id, float(wide_V[token_id] - normalizer)),
        top=[TokenLogprob(int(i), float(wide_V[i] - normalizer)) for i in top_ids],
    )


def _largest(values_V: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.intp]:
    """Indices of the `count` largest, largest first, equal ones by index."""
    threshold = np.partition(values_V, len(values_V) - count)[len(values_V) - count]
    kept = _at_least(values_V, threshold, count)
    return kept[np.argsort(-values_V[kept], kind="stable")]


def _at_least(
    values_V: npt.NDArray[np.float64], threshold: np.float64, count: int
) -> npt.NDArray[np.intp]:
    """Indices of the `count` largest, of which `threshold` is the least; of equal ones the first.
    Those above it come by index, then those at it."""
    above = np.flatnonzero(values_V > threshold)
    at = np.flatnonzero(values_V == threshold)
    return np.concatenate([above, at[: count - len(above)]])


def _uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on (seed, position) only."""
    bits = np.random.Philox(key=seed % 2**64, counter=position)
    return float(np.random.Generator(bits).random())

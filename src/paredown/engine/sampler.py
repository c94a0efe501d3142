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

from paredown.engine.sampling_params import SamplingParams

# top_p first looks among this many best tokens; a full sort of the vocabulary is the rare case.
NUM_LIKELY = 256


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
    scaled_V /= params.temperature
    probs_V = np.exp(scaled_V)
    vocab_size = len(probs_V)
    top_k = min(params.top_k or vocab_size, vocab_size)
    if params.top_p == 1:
        if top_k == vocab_size:
            return None, probs_V
        ids = _largest(scaled_V, top_k)
        return ids, probs_V[ids]
    if top_k < vocab_size:
        ids = _largest(scaled_V, top_k)
        total = float(probs_V[ids].sum())
    else:
        total = float(probs_V.sum())
    for num_candidates in (min(NUM_LIKELY, top_k), top_k):
        ids = _largest(scaled_V, num_candidates)
        cumulative = probs_V[ids].cumsum()
        if cumulative[-1] >= params.top_p * total or num_candidates == top_k:
            break
    num_kept = int(cumulative.searchsorted(params.top_p * total, side="left")) + 1
    ids = ids[:num_kept]
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
    vocab_size = len(values_V)
    if count < vocab_size:
        threshold = np.partition(values_V, vocab_size - count)[vocab_size - count]
        above = np.flatnonzero(values_V > threshold)
        ties = np.flatnonzero(values_V == threshold)[: count - len(above)]
        kept = np.concatenate([above, ties])
    else:
        kept = np.arange(vocab_size)
    # Equal values stand in `kept` by index, and a stable sort leaves them so.
    return kept[np.argsort(-values_V[kept], kind="stable")]


def _uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on (seed, position) only."""
    bits = np.random.Philox(key=seed % 2**64, counter=position)
    return float(np.random.Generator(bits).random())

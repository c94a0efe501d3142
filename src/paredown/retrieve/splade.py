"""SPLADE's score (arXiv 2107.05720, section 3): the dot product of two sparse vectors.

A text is a weight for some tokens of the vocabulary, max over its tokens of log(1 + ReLU(logit)).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.errors import ConfigError
from paredown.retrieve.vectors import Floats, as_vectors


@dataclass(frozen=True, kw_only=True)
class SparseVector:
    """The tokens that have a weight, each once, and their weights. Raises ConfigError for another
    number of weights, for a token that occurs twice and for negative tokens."""

    ids: npt.ArrayLike
    weights: npt.ArrayLike

    def __post_init__(self) -> None:
        ids = np.asarray(self.ids, None if np.size(self.ids) else np.int64)
        weights = as_vectors(self.weights, "weights") if ids.size else np.empty((1, 0))
        is_sound = ids.ndim == 1 and ids.dtype.kind in "iu" and weights.shape == (1, len(ids))
        if not is_sound or (ids < 0).any() or len(np.unique(ids)) != len(ids):
            raise ConfigError(
                "a sparse vector has one weight for each of its tokens, which differ",
                seen=f"ids {ids}, {weights.size} weights",
                remedy="Give token ids from 0 on, each once, and as many weights.",
            )


def splade(query: SparseVector, documents: Sequence[SparseVector]) -> Floats:
    """Returns the score [N] of each document."""
    scores: Floats = splade_all([query], documents)[0]
    return scores


def splade_all(queries: Sequence[SparseVector], documents: Sequence[SparseVector]) -> Floats:
    """Returns the scores [Q, N] of all queries with all documents."""
    scores_QN = np.zeros((len(queries), len(documents)), np.float32)
    if not len(documents):
        return scores_QN
    ids, weights = zip(*(_arrays(one) for one in documents), strict=True)
    owners_T = np.repeat(np.arange(len(documents)), [len(one) for one in ids])
    ids_T, weights_T = np.concatenate(ids), np.concatenate(weights)
    order_T = np.argsort(ids_T, kind="stable")
    ids_T, weights_T, owners_T = ids_T[order_T], weights_T[order_T], owners_T[order_T]
    for scores_N, query in zip(scores_QN, queries, strict=True):
        for token, weight in zip(*_arrays(query), strict=True):
            begin, end = np.searchsorted(ids_T, [token, token + 1])
            scores_N[owners_T[begin:end]] += weight * weights_T[begin:end]
    return scores_QN


def _arrays(vector: SparseVector) -> tuple[npt.NDArray[np.int64], Floats]:
    return np.asarray(vector.ids, np.int64), np.asarray(vector.weights, np.float32)

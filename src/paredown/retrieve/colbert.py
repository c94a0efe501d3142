"""ColBERT's late interaction (arXiv 2004.12832, equation 3): MaxSim over tokens.

    s(q, d) = sum over tokens i of q of the largest q_i . d_j over tokens j of d

Sequences are given without padding (`real_tokens` takes it away), so nothing but real tokens can
win, however small the similarities are. Whether the query's expansion slots count is the caller's
choice: they do where they are given. Vectors are compared as they are; ColBERT's have length 1.

Letters: Q queries, N documents, S and T their tokens, D dimensions.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.retrieve.vectors import Floats, as_token_vectors, check_dims


def maxsim(query_SD: npt.ArrayLike, documents: Sequence[npt.ArrayLike]) -> Floats:
    """Returns the score [N] of each document [T, D], whose numbers of tokens may differ. Raises
    ConfigError for a query or a document without tokens, and for unlike dimensions."""
    scores: Floats = maxsim_all([query_SD], documents)[0]
    return scores


def maxsim_all(queries: Sequence[npt.ArrayLike], documents: Sequence[npt.ArrayLike]) -> Floats:
    """Returns the scores [Q, N] of all queries with all documents. Raises what `maxsim` raises."""
    tokens_TD, offsets = as_token_vectors(documents, "documents")
    scores_QN = np.zeros((len(queries), len(documents)), np.float32)
    if not len(documents):
        return scores_QN
    for scores_N, query in zip(scores_QN, queries, strict=True):
        query_SD, _ = as_token_vectors([query], "queries")
        check_dims(query_SD, tokens_TD.shape[1], "queries")
        similarities_ST = query_SD @ tokens_TD.T
        scores_N[:] = np.maximum.reduceat(similarities_ST, offsets[:-1], axis=1).sum(axis=0)
    return scores_QN

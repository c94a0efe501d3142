"""Similarities of a query's vector to documents' vectors, larger for those that are nearer, as
sentence-transformers names them.

Letters: N documents, D dimensions.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from paredown.models.encoder_settings import Similarity
from paredown.retrieve.dense import cosine, dot

Floats = npt.NDArray[np.float32]


def _cosine(query_D: Floats, documents_ND: Floats) -> Floats:
    similarities_N: Floats = cosine(query_D, documents_ND)[0]
    return similarities_N


def _dot(query_D: Floats, documents_ND: Floats) -> Floats:
    products_N: Floats = dot(query_D, documents_ND)[0]
    return products_N


def _euclidean(query_D: Floats, documents_ND: Floats) -> Floats:
    distances_N: Floats = np.linalg.norm(documents_ND - query_D, axis=1)
    return -distances_N


def _manhattan(query_D: Floats, documents_ND: Floats) -> Floats:
    distances_N: Floats = np.abs(documents_ND - query_D).sum(axis=1)
    return -distances_N


SIMILARITIES: Mapping[Similarity, Callable[[Floats, Floats], Floats]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}

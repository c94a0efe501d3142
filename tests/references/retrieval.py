"""Scores of retrieval as their papers write them, in float64: one token, one number at a time."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np


def dot(query_D, document_D) -> float:
    return sum(float(a) * float(b) for a, b in zip(query_D, document_D, strict=True))


def cosine(query_D, document_D) -> float:
    lengths = dot(query_D, query_D) ** 0.5 * dot(document_D, document_D) ** 0.5
    return dot(query_D, document_D) / lengths if lengths else 0.0


def maxsim(query_SD, document_TD) -> float:
    """arXiv 2004.12832, equation 3."""
    return sum(max(dot(mine, theirs) for theirs in document_TD) for mine in query_SD)


def coil(query_ids, query_SD, document_ids, document_TD, query_cls=None, document_cls=None):
    """arXiv 2104.07186, equations 4 and 7."""
    total = 0.0
    for token, mine in zip(query_ids, query_SD, strict=True):
        same = [
            dot(mine, theirs)
            for other, theirs in zip(document_ids, document_TD, strict=True)
            if other == token
        ]
        if same:
            total += max(same)
    if query_cls is not None:
        total += dot(query_cls, document_cls)
    return total


def sparse_dot(query: dict[int, float], document: dict[int, float]) -> float:
    """arXiv 2107.05720, section 3."""
    return sum(weight * document.get(token, 0.0) for token, weight in query.items())


def best(scores: Iterable[float], k: int) -> list[int]:
    """The numbers of the `k` highest scores, of equal ones the lowest."""
    ranked = sorted(enumerate(scores), key=lambda one: (-one[1], one[0]))
    return [number for number, _ in ranked[:k]]


def quantized(vector_D, dtype: str) -> np.ndarray:
    """What is kept of a vector: itself, bf16, or int8 codes times a scale."""
    vector = np.asarray(vector_D, np.float32)
    if dtype == "fp32":
        return vector
    if dtype == "bf16":
        bits = vector.view(np.uint32)
        return (
            ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        )
    largest = np.abs(vector).max()
    if not largest:
        return np.zeros_like(vector)
    codes = np.rint(vector * (np.float32(127) / largest))
    return codes * (largest / np.float32(127))


def split(tokens_TD, offsets: Sequence[int]) -> list[np.ndarray]:
    return [tokens_TD[a:b] for a, b in pairwise(offsets)]

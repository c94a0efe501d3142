"""COIL (arXiv 2104.07186, equations 4 to 7): exact match of tokens, weighed by their vectors.

    s(q, d) = sum over tokens i of q that occur in d of the largest q_i . d_j over those j of d
              that are the same token, and the dot product of the two CLS vectors where there are

Which tokens take part is the caller's choice: markers such as [CLS] and [SEP] are left out.

Letters: Q queries, N documents, T tokens, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.errors import ConfigError
from paredown.retrieve.dense import dot
from paredown.retrieve.vectors import Floats, Ints, as_vectors, check_dims

# Vectors whose products with all of one token are in memory together.
_ASKED_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class CoilText:
    """A text as COIL sees it: its token ids [T], their vectors [T, D], and the vector of CLS, which
    may have other dimensions. Raises ConfigError where ids and vectors differ in number."""

    ids: npt.ArrayLike
    vectors: npt.ArrayLike
    cls: npt.ArrayLike | None = None

    def __post_init__(self) -> None:
        ids = np.asarray(self.ids)
        num_vectors = len(as_vectors(self.vectors, "token vectors"))
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(ids) != num_vectors:
            raise ConfigError(
                "there is one token id for each vector",
                seen=f"ids {ids.dtype} {ids.shape}, {num_vectors} vectors",
                remedy="Give as many whole numbers as vectors.",
            )


def coil(query: CoilText, documents: Sequence[CoilText]) -> Floats:
    """Returns the score [N] of each document. Raises ConfigError for unlike dimensions, and where
    some texts have a CLS vector and others have none."""
    scores: Floats = coil_all([query], documents)[0]
    return scores


def coil_all(queries: Sequence[CoilText], documents: Sequence[CoilText]) -> Floats:
    """Returns the scores [Q, N] of all queries with all documents. Raises what `coil` raises."""
    scores_QN = np.zeros((len(queries), len(documents)), np.float32)
    if not len(queries) or not len(documents):
        return scores_QN
    asked, kept = _InvertedLists(queries, "queries"), _InvertedLists(documents, "documents")
    check_dims(asked.vectors_TD, kept.vectors_TD.shape[1], "queries")
    for token in np.intersect1d(asked.ids_T, kept.ids_T):
        _add_products(asked.list_of(token), kept.list_of(token), scores_QN)
    return scores_QN + _cls_products(queries, documents)


# The vectors of one token, and the numbers of the texts that have them, in ascending order.
_List = tuple[Floats, Ints]


class _InvertedLists:
    """The tokens of all texts, those of the same id side by side and in the texts' order."""

    def __init__(self, texts: Sequence[CoilText], what: str) -> None:
        parts = [as_vectors(one.vectors, "token vectors") for one in texts]
        for number, part in enumerate(parts):
            check_dims(part, parts[0].shape[1], f"{what}, number {number}")
        ids_T = np.concatenate([np.asarray(one.ids, np.int64) for one in texts])
        owners_T = np.repeat(np.arange(len(parts)), [len(one) for one in parts])
        order_T = np.argsort(ids_T, kind="stable")
        self.ids_T: Ints = ids_T[order_T]
        self.vectors_TD: Floats = np.concatenate(parts)[order_T]
        self._owners_T: Ints = owners_T[order_T]

    def list_of(self, token: np.int64) -> _List:
        begin, end = np.searchsorted(self.ids_T, [token, token + 1])
        return self.vectors_TD[begin:end], self._owners_T[begin:end]


def _add_products(asked: _List, kept: _List, scores_QN: Floats) -> None:
    """Adds the largest product of each asking vector with those of a document, for one token."""
    (starts,) = np.nonzero(np.diff(kept[1], prepend=-1))
    documents = kept[1][starts]
    for first in range(0, len(asked[0]), _ASKED_AT_ONCE):
        some = slice(first, first + _ASKED_AT_ONCE)
        largest = np.maximum.reduceat(asked[0][some] @ kept[0].T, starts, axis=1)
        for query, row in zip(asked[1][some], largest, strict=True):
            scores_QN[query, documents] += row


def _cls_products(queries: Sequence[CoilText], documents: Sequence[CoilText]) -> Floats:
    """Returns the dot products [Q, N] of CLS vectors, zeros where no text has one."""
    kinds = {one.cls is None for one in (*queries, *documents)}
    if kinds == {True}:
        return np.zeros((len(queries), len(documents)), np.float32)
    if len(kinds) == 2:
        raise ConfigError(
            "some texts have a CLS vector and others have none",
            seen=f"{sum(one.cls is None for one in (*queries, *documents))} without",
            remedy="Give it for all texts or for none.",
        )
    of_queries, of_documents = (
        np.concatenate([as_vectors(one.cls, "CLS vectors") for one in texts if one.cls is not None])
        for texts in (queries, documents)
    )
    return dot(of_queries, of_documents)

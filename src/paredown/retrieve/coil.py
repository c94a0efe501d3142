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
from paredown.retrieve.postings import Postings
from paredown.retrieve.vectors import Floats, Ints, as_vectors, check_dims

MAX_TOKEN = 2**32 - 1
# Vectors whose products with all of one token are in memory together.
_ASKED_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class CoilText:
    """A text as COIL sees it: its token ids [T], their vectors [T, D], and the vector of CLS, which
    may have other dimensions. A text without tokens has vectors [0, D]. Raises ConfigError where
    ids and vectors differ in number, for ids that no vocabulary has and for more than one CLS."""

    ids: npt.ArrayLike
    vectors: npt.ArrayLike
    cls: npt.ArrayLike | None = None

    def __post_init__(self) -> None:
        ids = np.asarray(self.ids, None if np.size(self.ids) else np.int64)
        num_vectors = len(as_vectors(self.vectors, "token vectors"))
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(ids) != num_vectors:
            raise ConfigError(
                "there is one token id for each vector",
                seen=f"ids {ids.dtype} {ids.shape}, {num_vectors} vectors",
                remedy="Give as many whole numbers as vectors.",
            )
        if len(ids) and not (ids.min() >= 0 and ids.max() <= MAX_TOKEN):
            raise ConfigError(
                "no vocabulary has such a token",
                seen=f"ids from {ids.min()} to {ids.max()}",
                remedy=f"Give token ids from 0 to {MAX_TOKEN:,}.",
            )
        if self.cls is not None and len(as_vectors(self.cls, "CLS vectors")) != 1:
            raise ConfigError(
                "a text has one CLS vector",
                seen=f"shape {np.shape(self.cls)}",
                remedy="Give the vector of one text.",
            )

    def postings(self, number: int) -> Postings:
        """Returns the places of the tokens in this text, which is document `number`."""
        vectors_TD = as_vectors(self.vectors, "token vectors")
        return Postings(
            tokens=np.asarray(self.ids, np.uint32),
            documents=np.full(len(vectors_TD), number, np.uint32),
            vectors=vectors_TD,
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
        parts = [one.postings(number) for number, one in enumerate(texts)]
        for number, part in enumerate(parts):
            check_dims(part.vectors, parts[0].vectors.shape[1], f"{what}, number {number}")
        sorted_T = Postings.together(parts).by_token()
        self.ids_T = sorted_T.tokens.astype(np.int64)
        self.vectors_TD = sorted_T.vectors
        self._owners_T = sorted_T.documents.astype(np.int64)

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
    together = cls_vectors([*queries, *documents])
    if together is None:
        return np.zeros((len(queries), len(documents)), np.float32)
    return dot(together[: len(queries)], together[len(queries) :])


def cls_vectors(texts: Sequence[CoilText]) -> Floats | None:
    """Returns the CLS vectors [N, D] of one text or more, None where no text has one. Raises
    ConfigError where some have and for unlike dimensions."""
    found = [as_vectors(one.cls, "CLS vectors") for one in texts if one.cls is not None]
    if not found:
        return None
    if len(found) != len(texts):
        raise ConfigError(
            "some texts have a CLS vector and others have none",
            seen=f"{len(texts) - len(found)} without",
            remedy="Give it for all texts or for none.",
        )
    for number, one in enumerate(found):
        check_dims(one, found[0].shape[1], f"CLS vectors, number {number}")
    return np.concatenate(found)

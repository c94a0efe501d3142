"""Postings: the places of tokens in documents, each with its vector."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paredown.kernels.coil_search import Numbers
from paredown.retrieve.vectors import Floats


@dataclass(frozen=True, kw_only=True)
class Postings:
    """`tokens` [P], the numbers of `documents` [P] and `vectors` [P, D], one for each posting."""

    tokens: Numbers
    documents: Numbers
    vectors: Floats

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def num_bytes(self) -> int:
        return self.tokens.nbytes + self.documents.nbytes + self.vectors.nbytes

    def part(self, begin: int, end: int) -> "Postings":
        """Returns postings [begin, end) without a copy."""
        return Postings(
            tokens=self.tokens[begin:end],
            documents=self.documents[begin:end],
            vectors=self.vectors[begin:end],
        )

    def by_token(self) -> "Postings":
        """Returns the postings in ascending order of tokens, those of a token as they were."""
        order_P = np.argsort(self.tokens, kind="stable")
        return Postings(
            tokens=self.tokens[order_P],
            documents=self.documents[order_P],
            vectors=self.vectors[order_P],
        )

    @staticmethod
    def together(parts: Sequence["Postings"]) -> "Postings":
        """Returns the postings of all parts, of which there is one or more."""
        return Postings(
            tokens=np.concatenate([one.tokens for one in parts]),
            documents=np.concatenate([one.documents for one in parts]),
            vectors=np.concatenate([one.vectors for one in parts]),
        )

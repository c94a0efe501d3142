"""TokenIndex: a vector for each token of a document, searched exactly by MaxSim (ColBERT)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy.typing as npt

from paredown.errors import ConfigError
from paredown.retrieve.dense_index import check_num_hits
from paredown.retrieve.export import export_npy
from paredown.retrieve.index_builder import IndexBuilder, build_index
from paredown.retrieve.index_config import IndexConfig
from paredown.retrieve.opened_index import Hits, OpenedIndex
from paredown.retrieve.vectors import Ints, as_token_vectors


class TokenIndex:
    """An index that is mapped from its folder, not read into memory. Any thread may search it."""

    def __init__(self, opened: OpenedIndex) -> None:
        """Raises RetrievalError for offsets that no index has."""
        self._opened = opened
        self.header = opened.header
        self._offsets = opened.token_offsets()
        self._search = opened.vector_search(self._offsets)

    @staticmethod
    def build(
        folder: str | Path, config: IndexConfig | None = None, *, overwrite: bool = False
    ) -> AbstractContextManager[IndexBuilder]:
        """Builds an index as `DenseIndex.build` does; `builder.add` takes an array [tokens,
        dimensions] for each document, without padding."""
        return build_index(Path(folder), "tokens", config or IndexConfig(), overwrite=overwrite)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        model: str | None = None,
        num_threads: int | None = None,
        verify: bool = True,
    ) -> "TokenIndex":
        """Opens an index as `DenseIndex.open` does, and raises what it raises."""
        opened = OpenedIndex(
            Path(folder), "tokens", model=model, num_threads=num_threads, verify=verify
        )
        return cls(opened)

    def __len__(self) -> int:
        return self.header.num_documents

    def search_maxsim(self, queries: Sequence[npt.ArrayLike], k: int = 10) -> Hits:
        """Finds the `k` best documents for each query [tokens, D], all where there are fewer.

        A score is the sum over the query's tokens of the largest similarity with a token of the
        document (arXiv 2004.12832, equation 3); padding has no place in it. Every document is
        compared, with the promises of `DenseIndex.search`. Raises ConfigError for a query without
        tokens, unlike dimensions, and a `k` below 1.
        """
        if not len(queries):
            raise ConfigError(
                "a search needs a query", seen="none", remedy="Give an array for each query."
            )
        tokens_TD, offsets = as_token_vectors(queries, "queries")
        check_num_hits(k)
        tokens_TD = self._opened.as_queries(tokens_TD)
        scores, numbers = self._search.top_max_sim(tokens_TD, offsets, k)
        return Hits(scores=scores, numbers=numbers)

    def ids(self, numbers: Ints) -> list[str]:
        """Returns the ids of documents. Raises ConfigError where the index holds none."""
        return self._opened.strings("ids", numbers)

    def texts(self, numbers: Ints) -> list[str]:
        """Returns the texts of documents. Raises ConfigError where the index holds none."""
        return self._opened.strings("texts", numbers)

    def offsets(self) -> Ints:
        """Returns where each document's tokens begin, and the end [documents + 1]."""
        return self._offsets.copy()

    def export_npy(self, path: str | Path) -> None:
        """Writes the vectors of all tokens [T, D] as float32 to a .npy file; `offsets` says whose
        they are. Raises OutputError."""
        export_npy(self._opened, Path(path))

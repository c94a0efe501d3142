"""CoilIndex: posting lists of contextualized tokens, searched exactly (COIL)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from paredown.errors import ConfigError
from paredown.kernels.coil_search import CoilSearch, Numbers
from paredown.retrieve.coil import CoilText, cls_vectors
from paredown.retrieve.coil_documents import as_coil_text
from paredown.retrieve.dense_index import check_num_hits
from paredown.retrieve.index_builder import IndexBuilder, build_index
from paredown.retrieve.index_config import IndexConfig
from paredown.retrieve.index_header import CLS, CLS_SCALES, DOCUMENTS, OFFSETS, TOKENS, damaged
from paredown.retrieve.opened_index import Hits, OpenedIndex
from paredown.retrieve.postings import Postings
from paredown.retrieve.vectors import Floats, Ints, check_dims

_DOT = IndexConfig(metric="dot")


class CoilIndex:
    """An index that is mapped from its folder, not read into memory. Any thread may search it."""

    def __init__(self, opened: OpenedIndex) -> None:
        """Raises RetrievalError for lists that no index has."""
        self._opened = opened
        self.header = header = opened.header
        self._tokens_L: Numbers = opened.array(TOKENS, np.uint32)
        if (self._tokens_L[:-1] >= self._tokens_L[1:]).any():
            raise damaged(opened.folder / TOKENS, "its tokens do not rise")
        try:
            self._search = CoilSearch(
                header.dtype,
                opened.packed(header.num_dims),
                list_offsets=opened.array(OFFSETS, np.int64),
                documents_P=opened.array(DOCUMENTS, np.uint32),
                num_documents=header.num_documents,
                cls=opened.packed(header.num_cls_dims, (CLS, CLS_SCALES))
                if header.num_cls_dims
                else None,
                num_threads=opened.num_threads,
            )
        except ValueError as error:
            raise damaged(opened.folder / DOCUMENTS, error) from error

    @staticmethod
    def build(
        folder: str | Path, config: IndexConfig = _DOT, *, overwrite: bool = False
    ) -> AbstractContextManager[IndexBuilder]:
        """Builds an index as `DenseIndex.build` does; `builder.add` takes a `CoilText` for each
        document, and vectors are compared by dot product as the paper does unless `config` says
        otherwise.

        Lists are made of all documents: until the block ends, the disk holds their vectors as
        float32, too."""
        return build_index(Path(folder), "coil", config, overwrite=overwrite)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        model: str | None = None,
        num_threads: int | None = None,
        verify: bool = True,
    ) -> "CoilIndex":
        """Opens an index as `DenseIndex.open` does, and raises what it raises."""
        return cls(
            OpenedIndex(Path(folder), "coil", model=model, num_threads=num_threads, verify=verify)
        )

    def __len__(self) -> int:
        return self.header.num_documents

    def search(self, queries: Sequence[CoilText], k: int = 10) -> Hits:
        """Finds the `k` best documents for each query, all where there are fewer.

        A score is that of `coil` (arXiv 2104.07186, equations 4 and 7): the sum over the query's
        tokens, of those that the document has too, of the largest product with a vector of that
        token, and the product of CLS where the index has it. A document without any of the tokens
        has what CLS gives, or 0. Every document is compared, with the promises of
        `DenseIndex.search`.

        Raises ConfigError for what is no CoilText, unlike dimensions, a query with CLS where
        documents have none and the other way round, and a `k` below 1.
        """
        if not len(queries):
            raise ConfigError(
                "a search needs a query", seen="none", remedy="Give a CoilText for each query."
            )
        check_num_hits(k)
        parts = [as_coil_text(one).postings(number) for number, one in enumerate(queries)]
        for number, part in enumerate(parts):
            check_dims(part.vectors, self.header.num_dims, f"queries, number {number}")
        tokens_TD, lists_T, offsets = self._known(Postings.together(parts), len(parts))
        scores, numbers = self._search.top(
            self._opened.as_queries(tokens_TD), lists_T, offsets, self._cls_of(queries), k
        )
        return Hits(scores=scores, numbers=numbers)

    def ids(self, numbers: Ints) -> list[str]:
        """Returns the ids of documents. Raises ConfigError where the index holds none."""
        return self._opened.strings("ids", numbers)

    def texts(self, numbers: Ints) -> list[str]:
        """Returns the texts of documents. Raises ConfigError where the index holds none."""
        return self._opened.strings("texts", numbers)

    def _known(self, asked: Postings, num_queries: int) -> tuple[Floats, Ints, Ints]:
        """Returns the vectors of query tokens that a document has, their lists, and where each
        query begins."""
        places_T = np.searchsorted(self._tokens_L, asked.tokens)
        found_T = self._tokens_L[np.minimum(places_T, len(self._tokens_L) - 1)] == asked.tokens
        offsets = np.searchsorted(asked.documents[found_T], np.arange(num_queries + 1))
        return asked.vectors[found_T], places_T[found_T].astype(np.int64), offsets.astype(np.int64)

    def _cls_of(self, queries: Sequence[CoilText]) -> Floats | None:
        found_QD = cls_vectors(queries)
        if (found_QD is None) != (self.header.num_cls_dims == 0):
            raise ConfigError(
                "queries have a CLS vector where the documents have one",
                seen=f"{'none' if found_QD is None else 'one'} for queries, "
                f"{self.header.num_cls_dims} dimensions for documents",
                remedy="Give it for all texts or for none.",
            )
        if found_QD is None:
            return None
        check_dims(found_QD, self.header.num_cls_dims, "CLS vectors of queries")
        return self._opened.compared(found_QD)

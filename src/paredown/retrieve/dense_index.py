"""DenseIndex: one vector a document, searched exactly."""

from contextlib import AbstractContextManager
from pathlib import Path

import numpy.typing as npt

from paredown.errors import ConfigError
from paredown.retrieve.export import export_npy
from paredown.retrieve.index_builder import IndexBuilder, build_index
from paredown.retrieve.index_config import IndexConfig
from paredown.retrieve.opened_index import Hits, OpenedIndex
from paredown.retrieve.vectors import Ints, as_vectors


class DenseIndex:
    """An index that is mapped from its folder, not read into memory. Any thread may search it."""

    def __init__(self, opened: OpenedIndex) -> None:
        self._opened = opened
        self.header = opened.header
        self._search = opened.vector_search()

    @staticmethod
    def build(
        folder: str | Path, config: IndexConfig | None = None, *, overwrite: bool = False
    ) -> AbstractContextManager[IndexBuilder]:
        """Builds an index in one pass, `with DenseIndex.build(folder) as builder`, as long as the
        block lasts (`IndexBuilder.add`).

        Memory does not grow with the number of vectors, and the folder appears when all is written.
        Raises OutputError where it exists and is not to be overwritten, and for a full disk."""
        return build_index(Path(folder), "dense", config or IndexConfig(), overwrite=overwrite)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        model: str | None = None,
        num_threads: int | None = None,
        verify: bool = True,
    ) -> "DenseIndex":
        """Opens an index whose vectors `model`, where it is named, has made. `verify` reads all
        bytes once and compares their digests; sizes are always checked. Raises RetrievalError for a
        folder that is no dense index, is damaged, or was made by another model."""
        opened = OpenedIndex(
            Path(folder), "dense", model=model, num_threads=num_threads, verify=verify
        )
        return cls(opened)

    def __len__(self) -> int:
        return self.header.num_documents

    def search(self, queries_QD: npt.ArrayLike, k: int = 10) -> Hits:
        """Finds the `k` best documents for each query [Q, D], or for one [D]; all of them where
        there are fewer. Every vector is compared: in bf16 and int8 with queries rounded alike.

        Where scores are the same the lower number comes first. A query's hits are the same bits
        alone, among others, and with any number of threads. Raises ConfigError for what is no
        vector, unlike dimensions, and a `k` below 1.
        """
        queries = self._opened.as_queries(as_vectors(queries_QD, "queries"))
        check_num_hits(k)
        if not len(queries):
            raise ConfigError(
                "a search needs a query", seen="none", remedy="Give vectors [queries, dimensions]."
            )
        scores, numbers = self._search.top(queries, k)
        return Hits(scores=scores, numbers=numbers)

    def ids(self, numbers: Ints) -> list[str]:
        """Returns the ids of documents. Raises ConfigError where the index holds none."""
        return self._opened.strings("ids", numbers)

    def texts(self, numbers: Ints) -> list[str]:
        """Returns the texts of documents. Raises ConfigError where the index holds none."""
        return self._opened.strings("texts", numbers)

    def export_npy(self, path: str | Path) -> None:
        """Writes all vectors [N, D] as float32 to a .npy file, as search meets them. Raises
        OutputError."""
        export_npy(self._opened, Path(path))


def check_num_hits(k: int) -> None:
    """Raises ConfigError below 1."""
    if k < 1:
        raise ConfigError("a search finds at least one document", seen=k, remedy="Use k=1 or more.")

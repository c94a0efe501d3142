"""TokenDocuments: writes a vector for each token of a document, and where documents begin."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from paredown.retrieve.document_writer import CheckedBatch, Documents, WrittenDocuments
from paredown.retrieve.index_config import IndexConfig
from paredown.retrieve.index_header import OFFSETS
from paredown.retrieve.stored_bytes import BytesWriter
from paredown.retrieve.vector_file import VectorWriter
from paredown.retrieve.vectors import Floats, Ints, as_token_vectors


class TokenDocuments:
    """Files are closed with `stack`."""

    def __init__(self, folder: Path, config: IndexConfig, stack: ExitStack) -> None:
        self._vectors = VectorWriter(folder, config.dtype, config.metric, stack)
        self._offsets: BytesWriter = stack.enter_context(BytesWriter(folder / OFFSETS))
        self._offsets.write(np.zeros(1, np.int64))

    def check(self, documents: Documents) -> CheckedBatch:
        """Takes an array [tokens, dimensions] for each document (`DocumentWriter.check`)."""
        vectors_TD, offsets = as_token_vectors(documents, "documents")
        self._vectors.check(vectors_TD)
        return CheckedBatch(
            num_documents=len(offsets) - 1, write=partial(self._write, vectors_TD, offsets)
        )

    def finish(self) -> WrittenDocuments:
        files = self._vectors.finish() | {OFFSETS: self._offsets.finish()}
        return WrittenDocuments(
            num_dims=self._vectors.num_dims, num_vectors=self._vectors.num_vectors, files=files
        )

    def _write(self, vectors_TD: Floats, offsets: Ints) -> None:
        ends = self._vectors.num_vectors + offsets[1:]
        self._vectors.add(vectors_TD)
        self._offsets.write(ends)

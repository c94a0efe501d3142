"""DenseDocuments: writes one vector a document."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from paredown.retrieve.document_writer import CheckedBatch, Documents, WrittenDocuments
from paredown.retrieve.index_config import IndexConfig
from paredown.retrieve.vector_file import VectorWriter
from paredown.retrieve.vectors import as_vectors


class DenseDocuments:
    """Files are closed with `stack`."""

    def __init__(self, folder: Path, config: IndexConfig, stack: ExitStack) -> None:
        self._vectors = VectorWriter(folder, config.dtype, config.metric, stack)

    def check(self, documents: Documents) -> CheckedBatch:
        """Takes vectors [documents, dimensions] (`DocumentWriter.check`)."""
        vectors_ND = as_vectors(documents, "vectors of an index")
        self._vectors.check(vectors_ND)
        return CheckedBatch(
            num_documents=len(vectors_ND), write=partial(self._vectors.add, vectors_ND)
        )

    def finish(self) -> WrittenDocuments:
        files = self._vectors.finish()
        return WrittenDocuments(
            num_dims=self._vectors.num_dims, num_vectors=self._vectors.num_vectors, files=files
        )

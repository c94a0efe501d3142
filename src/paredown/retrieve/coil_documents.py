"""CoilDocuments: writes a posting list for each token, and CLS vectors of documents.

Documents come in any order of tokens, and lists lie in that of tokens: postings are sorted on disk
(posting_runs.py) and packed at the end.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from paredown.errors import ConfigError
from paredown.kernels.vector_search import MAX_VECTORS
from paredown.retrieve.coil import CoilText, cls_vectors
from paredown.retrieve.document_writer import CheckedBatch, Documents, WrittenDocuments
from paredown.retrieve.index_config import IndexConfig
from paredown.retrieve.index_header import (
    CLS,
    CLS_SCALES,
    DOCUMENTS,
    MAX_DOCUMENTS,
    OFFSETS,
    TOKENS,
)
from paredown.retrieve.posting_runs import PostingRuns
from paredown.retrieve.postings import Postings
from paredown.retrieve.stored_bytes import BytesWriter, StoredBytes
from paredown.retrieve.vector_file import VectorWriter, check_capacity
from paredown.retrieve.vectors import Floats, check_dims


class CoilDocuments:
    """The first text settles the dimensions and whether there is CLS. Files are closed with
    `stack`."""

    def __init__(self, folder: Path, config: IndexConfig, stack: ExitStack) -> None:
        self._folder, self._config, self._stack = folder, config, stack
        self._runs = PostingRuns(folder, stack)
        self._cls: VectorWriter | None = None
        self._num_dims = 0
        self._num_documents = 0
        self._num_postings = 0

    def check(self, documents: Documents) -> CheckedBatch:
        """Takes a `CoilText` for each document, which may have no tokens
        (`DocumentWriter.check`)."""
        texts = [as_coil_text(one) for one in documents]
        first = self._num_documents
        check_capacity("documents", first + len(texts), MAX_DOCUMENTS)
        parts = [one.postings(first + i) for i, one in enumerate(texts)]
        for number, part in enumerate(parts):
            num_dims = self._num_dims or parts[0].vectors.shape[1]
            check_dims(part.vectors, num_dims, f"documents, number {number}")
        postings = Postings.together(parts)
        check_capacity("vectors", self._num_postings + len(postings), MAX_VECTORS)
        cls_ND = cls_vectors(texts)
        self._check_cls(cls_ND)
        return CheckedBatch(
            num_documents=len(parts), write=partial(self._write, len(parts), postings, cls_ND)
        )

    def finish(self) -> WrittenDocuments:
        """Raises ConfigError where no document has a token, and OSError."""
        if not self._num_postings:
            raise ConfigError(
                "an index of COIL needs tokens",
                seen=f"{self._num_documents} documents without any",
                remedy="Use DenseIndex for texts that are one vector each.",
            )
        runs = self._runs.sorted_runs()
        vectors = VectorWriter(self._folder, self._config.dtype, self._config.metric, self._stack)
        tokens, offsets, numbers = (
            self._stack.enter_context(BytesWriter(self._folder / name))
            for name in (TOKENS, OFFSETS, DOCUMENTS)
        )
        tokens.write(runs.tokens_L)
        offsets.write(runs.offsets)
        for postings in runs.merged():
            vectors.add(postings.vectors)
            numbers.write(postings.documents)
        files: dict[str, StoredBytes] = vectors.finish()
        files |= {TOKENS: tokens.finish(), OFFSETS: offsets.finish(), DOCUMENTS: numbers.finish()}
        if self._cls is not None:
            files |= self._cls.finish()
        return WrittenDocuments(
            num_dims=vectors.num_dims,
            num_vectors=vectors.num_vectors,
            files=files,
            num_lists=len(runs.tokens_L),
            num_cls_dims=0 if self._cls is None else self._cls.num_dims,
        )

    def _check_cls(self, cls_ND: Floats | None) -> None:
        if self._num_documents and (self._cls is None) != (cls_ND is None):
            raise ConfigError(
                "some texts have a CLS vector and others have none",
                seen="none" if cls_ND is None else "one after texts without",
                remedy="Give it for all texts or for none.",
            )
        if self._cls is not None and cls_ND is not None:
            self._cls.check(cls_ND)

    def _write(self, num_documents: int, postings: Postings, cls_ND: Floats | None) -> None:
        if cls_ND is not None:
            if self._cls is None:
                dtype, metric = self._config.dtype, self._config.metric
                names = (CLS, CLS_SCALES)
                self._cls = VectorWriter(self._folder, dtype, metric, self._stack, names)
            self._cls.add(cls_ND)
        if len(postings):
            self._runs.add(postings)
        self._num_dims = postings.vectors.shape[1]
        self._num_documents += num_documents
        self._num_postings += len(postings)


def as_coil_text(text: object) -> CoilText:
    """Raises ConfigError for anything else."""
    if isinstance(text, CoilText):
        return text
    raise ConfigError(
        "a text of COIL has token ids beside its vectors",
        seen=type(text).__name__,
        remedy="Give a CoilText for each.",
    )

"""IndexBuilder: writes an index in one pass over batches of documents.

    header.json           what the index is (index_header.py), written last
    vectors.bin           vectors in panels (csrc/retrieve/vectors.h); COIL groups them by token,
                          each group in the order of documents
    scales.bin            int8 alone: float32, one for each vector
    offsets.bin           int64: where each document's tokens begin, or each COIL list, and the end
    tokens.bin            COIL: uint32, the token of each list, in ascending order
    documents.bin         COIL: uint32, the document of each vector
    cls.bin,              COIL, where texts have CLS: a vector for each document, as above
    cls.scales.bin
    ids.bin, texts.bin    where they are given: UTF-8, and NAME.offsets.bin beside each

The folder gets its name when all is written: a kill leaves no index, and a full disk nothing.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from paredown.errors import ConfigError, OutputError
from paredown.files.new_file import make_file
from paredown.models.files.output_folder import output_folder
from paredown.retrieve.coil_documents import CoilDocuments
from paredown.retrieve.dense_documents import DenseDocuments
from paredown.retrieve.document_writer import Documents, DocumentWriter, WrittenDocuments
from paredown.retrieve.index_config import IndexConfig
from paredown.retrieve.index_header import NAME, IndexHeader, IndexKind
from paredown.retrieve.strings import StringWriter
from paredown.retrieve.token_documents import TokenDocuments

_WRITERS: dict[IndexKind, Callable[[Path, IndexConfig, ExitStack], DocumentWriter]] = {
    "dense": DenseDocuments,
    "tokens": TokenDocuments,
    "coil": CoilDocuments,
}


class IndexBuilder:
    """Takes documents until its block ends. Use the `build` of a kind of index."""

    def __init__(
        self, folder: Path, kind: IndexKind, config: IndexConfig, stack: ExitStack
    ) -> None:
        self._folder, self._kind, self._config, self._stack = folder, kind, config, stack
        self._documents = _WRITERS[kind](folder, config, stack)
        self._strings: dict[str, StringWriter] = {}
        self.num_documents = 0
        # What a batch that could not be written left in the files is unknown.
        self._is_whole = True

    def add(
        self,
        documents: Documents,
        *,
        ids: Sequence[str] | None = None,
        texts: Sequence[str] | None = None,
    ) -> None:
        """Adds a batch: a dense index takes vectors [documents, dimensions], a token index an array
        [tokens, dimensions] for each document, COIL a `CoilText` for each. All batches bring ids,
        or none does; texts likewise.

        Raises ConfigError for vectors that are none (`as_vectors`), unlike dimensions, a document
        without tokens in a token index, CLS in some texts alone, and another number of strings than
        documents; CapacityError for more than an index holds; OutputError for a full disk, and for
        all that comes after one.
        """
        self._check_whole()
        if not len(documents):
            return
        batch = self._documents.check(documents)
        given = {name: one for name, one in (("ids", ids), ("texts", texts)) if one is not None}
        with _writing(self._folder):
            self._check_strings(given, batch.num_documents)
            self._is_whole = False
            batch.write()
            for name, one in given.items():
                self._strings[name].add(one)
        self._is_whole = True
        self.num_documents += batch.num_documents

    def finish(self) -> None:
        """Raises ConfigError where there is no document, and OutputError for a full disk, now or
        before."""
        self._check_whole()
        if not self.num_documents:
            raise ConfigError(
                "an index needs documents", seen="none added", remedy="Add vectors in its block."
            )
        with _writing(self._folder):
            written = self._documents.finish()
            files = dict(written.files)
            for strings in self._strings.values():
                files |= strings.finish()
            self._write_header(replace(written, files=files))

    def _check_whole(self) -> None:
        if not self._is_whole:
            raise OutputError(
                f"the index {self._folder} lacks a batch that could not be written",
                seen=f"{self.num_documents} documents before it",
                remedy="Build it again from the first document.",
            )

    def _check_strings(self, given: dict[str, Sequence[str]], number: int) -> None:
        for name, one in given.items():
            if len(one) != number:
                raise ConfigError(
                    f"there is one of the {name} for each document",
                    seen=f"{len(one)} {name}, {number} documents",
                    remedy=f"Give as many {name} as documents.",
                )
            for string in one:
                if not isinstance(string, str):
                    raise ConfigError(
                        f"{name} of documents are strings",
                        seen=type(string).__name__,
                        remedy="Give str(...) of each.",
                    )
        if not self.num_documents:
            self._strings = {name: StringWriter(self._folder, name, self._stack) for name in given}
        if given.keys() != self._strings.keys():
            raise ConfigError(
                "all batches of an index have ids, or none; texts likewise",
                seen=f"{', '.join(given) or 'none'} after {', '.join(self._strings) or 'none'}",
                remedy="Give the same of them with each batch.",
            )

    def _write_header(self, written: WrittenDocuments) -> None:
        header = IndexHeader(
            kind=self._kind,
            dtype=self._config.dtype,
            metric=self._config.metric,
            num_documents=self.num_documents,
            model=self._config.model,
            num_dims=written.num_dims,
            num_vectors=written.num_vectors,
            num_lists=written.num_lists,
            num_cls_dims=written.num_cls_dims,
            files=written.files,
        )
        with make_file(self._folder / NAME) as file:
            file.write(header.encode())
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"the index {folder} could not be written",
            seen=error.strerror or error,
            remedy="Free some space or choose another place; nothing was left behind.",
        ) from error


@contextmanager
def build_index(
    path: Path, kind: IndexKind, config: IndexConfig, *, overwrite: bool
) -> Iterator[IndexBuilder]:
    """Yields a builder whose index stands at `path` once the block has ended. After any failure
    nothing is there. Raises OutputError where the folder exists and is not to be replaced, and for
    a full disk."""
    with output_folder(path, overwrite) as folder, ExitStack() as stack:
        builder = IndexBuilder(folder, kind, config, stack)
        yield builder
        builder.finish()

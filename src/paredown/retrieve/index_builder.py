"""IndexBuilder: writes an index in one pass over batches of documents.

    header.json           what the index is (index_header.py), written last
    vectors.bin           vectors in panels (csrc/retrieve/vectors.h)
    scales.bin            of int8: float32, one for each vector
    offsets.bin           of tokens: int64, where each document begins, and the end
    ids.bin, texts.bin    where they are given: UTF-8, and NAME.offsets.bin beside each

The folder gets its name when all is written: a kill leaves no index, and a full disk nothing.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.errors import ConfigError, OutputError
from paredown.files.new_file import make_file
from paredown.kernels.vector_search import VECTOR_DTYPES, VectorDType
from paredown.models.files.output_folder import output_folder
from paredown.retrieve.index_header import METRICS, NAME, OFFSETS, IndexHeader, IndexKind, Metric
from paredown.retrieve.stored_bytes import BytesWriter, StoredBytes
from paredown.retrieve.strings import StringWriter
from paredown.retrieve.vector_file import VectorWriter
from paredown.retrieve.vectors import Floats, Ints, as_token_vectors, as_vectors

STRING_FILES = ("ids", "texts")


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """How vectors are kept: as "int8" with a scale for each, "bf16" or "fp32"; and compared: by
    their "cosine", for which they are kept with length 1, or their "dot" product. `model` names
    what made them, such as by `model_digest`. Raises ConfigError for anything else."""

    dtype: VectorDType = "int8"
    metric: Metric = "cosine"
    model: str = ""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("dtype", self.dtype, VECTOR_DTYPES),
            ("metric", self.metric, METRICS),
        ):
            if value not in known:
                raise ConfigError(
                    f"an index has no such {name}", seen=value, remedy=f"Use {', '.join(known)}."
                )


class IndexBuilder:
    """Takes documents until its block ends. Use `DenseIndex.build` or `TokenIndex.build`."""

    def __init__(
        self, folder: Path, kind: IndexKind, config: IndexConfig, stack: ExitStack
    ) -> None:
        self._folder, self._kind, self._config, self._stack = folder, kind, config, stack
        self._vectors = VectorWriter(folder, config.dtype, config.metric, stack)
        self._offsets: BytesWriter | None = None
        if kind == "tokens":
            self._offsets = stack.enter_context(BytesWriter(folder / OFFSETS))
            self._offsets.write(np.zeros(1, np.int64))
        self._strings: dict[str, StringWriter] = {}
        self.num_documents = 0

    def add(
        self,
        documents: Sequence[npt.ArrayLike] | npt.NDArray[np.generic],
        *,
        ids: Sequence[str] | None = None,
        texts: Sequence[str] | None = None,
    ) -> None:
        """Adds a batch: a dense index takes vectors [documents, dimensions], a token index an array
        [tokens, dimensions] for each document. All batches bring ids, or none does; texts likewise.

        Raises ConfigError for vectors that are none (`as_vectors`), unlike dimensions, a document
        without tokens, and another number of strings than documents; OutputError for a full disk.
        """
        if not len(documents):
            return
        if self._offsets is None:
            vectors_ND = as_vectors(documents, "vectors of an index")
            number, ends = len(vectors_ND), None
        else:
            vectors_ND, offsets = as_token_vectors(documents, "documents")
            number, ends = len(offsets) - 1, self._vectors.num_vectors + offsets[1:]
        with _writing(self._folder):
            self._write(vectors_ND, ends, number, {"ids": ids, "texts": texts})

    def _write(
        self,
        vectors_ND: Floats,
        ends: Ints | None,
        number: int,
        strings: dict[str, Sequence[str] | None],
    ) -> None:
        given = {name: one for name, one in strings.items() if one is not None}
        self._check_strings(given, number)
        self._vectors.add(vectors_ND)
        if self._offsets is not None and ends is not None:
            self._offsets.write(ends)
        for name, one in given.items():
            self._strings[name].add(one)
        self.num_documents += number

    def finish(self) -> None:
        """Raises ConfigError where there is no document, and OutputError for a full disk."""
        if not self.num_documents:
            raise ConfigError(
                "an index needs documents", seen="none added", remedy="Add vectors in its block."
            )
        with _writing(self._folder):
            files = self._vectors.finish()
            if self._offsets is not None:
                files[OFFSETS] = self._offsets.finish()
            for strings in self._strings.values():
                files |= strings.finish()
            self._write_header(files)

    def _check_strings(self, given: dict[str, Sequence[str]], number: int) -> None:
        for name, one in given.items():
            if len(one) != number:
                raise ConfigError(
                    f"there is one of the {name} for each document",
                    seen=f"{len(one)} {name}, {number} documents",
                    remedy=f"Give as many {name} as documents.",
                )
        if not self.num_documents:
            self._strings = {name: StringWriter(self._folder, name, self._stack) for name in given}
        if given.keys() != self._strings.keys():
            raise ConfigError(
                "all batches of an index have ids, or none; texts likewise",
                seen=f"{', '.join(given) or 'none'} after {', '.join(self._strings) or 'none'}",
                remedy="Give the same of them with each batch.",
            )

    def _write_header(self, files: dict[str, StoredBytes]) -> None:
        header = IndexHeader(
            kind=self._kind,
            dtype=self._config.dtype,
            metric=self._config.metric,
            num_dims=self._vectors.num_dims,
            num_vectors=self._vectors.num_vectors,
            num_documents=self.num_documents,
            model=self._config.model,
            files=files,
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

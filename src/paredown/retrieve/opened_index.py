"""OpenedIndex: the mapped files of an index, checked against its header."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from paredown.errors import ConfigError, RetrievalError
from paredown.files.refused_file import RefusedFileError
from paredown.kernels.probe import resolve_num_threads
from paredown.kernels.vector_search import (
    UNIT,
    PackedVectors,
    VectorSearch,
    unpack_vectors,
    vector_bytes,
)
from paredown.retrieve.index_header import (
    OFFSETS,
    SCALES,
    VECTORS,
    IndexHeader,
    IndexKind,
    damaged,
    read_header,
)
from paredown.retrieve.stored_bytes import Bytes, check_bytes, map_bytes
from paredown.retrieve.strings import STRING_FILES, Strings, check_offsets, string_files
from paredown.retrieve.vectors import Floats, Ints, check_dims, unit_length

Number = TypeVar("Number", np.int64, np.uint32)


@dataclass(frozen=True, kw_only=True)
class Hits:
    """For each query the best documents, the best first: their scores and their numbers, counted
    from 0 in the order in which they were added [queries, hits]."""

    scores: Floats
    numbers: Ints


class OpenedIndex:
    """Each kind of index has one. Raises RetrievalError for a folder that is no index of this
    kind, is damaged, or was made by another model; ConfigError for a number of threads that is out
    of range."""

    def __init__(
        self,
        folder: Path,
        kind: IndexKind,
        *,
        model: str | None,
        num_threads: int | None,
        verify: bool,
    ) -> None:
        self.folder = folder
        self.header: IndexHeader = read_header(folder)
        if self.header.kind != kind:
            raise RetrievalError(
                f"{folder} is another kind of index",
                seen=f"{self.header.kind}, and {kind} is wanted",
                remedy="Open it as the kind that it is, or build another.",
            )
        self.header.check_model(model, folder)
        self.num_threads = resolve_num_threads(num_threads)
        self._files = {name: self._mapped(name, verify=verify) for name in self.header.files}
        self._strings = {name: self._checked_strings(name) for name in STRING_FILES}

    def array(self, name: str, dtype: type[Number]) -> npt.NDArray[Number]:
        """Returns a file whose length follows from the header, as numbers of that type."""
        return self._files[name].view(dtype)

    def packed(self, num_dims: int, names: tuple[str, str] = (VECTORS, SCALES)) -> PackedVectors:
        """Returns the vectors in files of those names, of values and of their scales."""
        values, scales = names
        return PackedVectors(
            num_dims=num_dims,
            values=self._files[values],
            scales=self._files.get(scales, np.empty(0, np.uint8)).view(np.float32),
        )

    def vector_search(self, offsets: Ints | None = None) -> VectorSearch:
        """Returns the search among all vectors, where `offsets` make them tokens of documents."""
        packed = self.packed(self.header.num_dims)
        return VectorSearch(
            self.header.dtype,
            (self.header.num_vectors, self.header.num_dims),
            packed.values,
            packed.scales if len(packed.scales) else None,
            offsets=offsets,
            num_threads=self.num_threads,
        )

    def token_offsets(self) -> Ints:
        """Returns where each document's tokens begin, and the end. Raises RetrievalError for
        offsets that do not rise."""
        offsets: Ints = self.array(OFFSETS, np.int64)
        try:
            check_offsets(offsets, self.header.num_vectors, may_be_empty=False)
        except ValueError as error:
            raise damaged(self.folder / OFFSETS, error) from error
        return offsets

    def strings(self, name: str, numbers: Ints) -> list[str]:
        """Returns the strings of those documents. Raises ConfigError for an index that has none of
        that name, and for numbers that it does not have."""
        found = self._strings[name]
        if found is None:
            raise ConfigError(
                f"the index {self.folder} holds no {name}",
                seen="it was built without them",
                remedy=f"Build it with {name}=[...].",
            )
        flat = np.asarray(numbers).reshape(-1)
        if len(flat) and not (flat.min() >= 0 and flat.max() < self.header.num_documents):
            raise ConfigError(
                "the index has no such document",
                seen=numbers,
                remedy=f"Use numbers from 0 to {self.header.num_documents - 1}.",
            )
        return [found[int(number)] for number in flat]

    def as_queries(self, vectors_QD: Floats) -> Floats:
        """Returns queries as the index compares them. Raises ConfigError for unlike dimensions."""
        check_dims(vectors_QD, self.header.num_dims, "queries")
        return self.compared(vectors_QD)

    def compared(self, vectors_ND: Floats) -> Floats:
        """Returns vectors with length 1 where the index compares by the cosine."""
        return unit_length(vectors_ND) if self.header.metric == "cosine" else vectors_ND

    def vectors(self, num_at_once: int = 64 * UNIT) -> Iterator[Floats]:
        """Yields all vectors in batches [up to num_at_once, D], as search meets them: rounded to
        the index's dtype, and with length 1 for the cosine."""
        assert num_at_once % UNIT == 0
        dtype, num_dims = self.header.dtype, self.header.num_dims
        packed = self.packed(num_dims)
        for first in range(0, self.header.num_vectors, num_at_once):
            number = min(num_at_once, self.header.num_vectors - first)
            begin = vector_bytes(dtype, first, num_dims) if first else 0
            end = begin + vector_bytes(dtype, number, num_dims)
            padded = math.ceil(number / UNIT) * UNIT
            scales = packed.scales[first : first + padded] if len(packed.scales) else packed.scales
            yield unpack_vectors(dtype, packed.values[begin:end], scales, number, num_dims)

    def _mapped(self, name: str, *, verify: bool) -> Bytes:
        path, wanted = self.folder / name, self.header.files[name]
        try:
            data = map_bytes(path, self.folder, wanted)
            if verify:
                check_bytes(data, wanted, self.num_threads)
        except RefusedFileError as error:
            raise RetrievalError(
                f"{path} is refused", seen=error.strerror, remedy=error.remedy
            ) from error
        except OSError as error:
            raise damaged(path, error.strerror or error) from error
        except ValueError as error:
            raise damaged(path, error) from error
        return data

    def _checked_strings(self, name: str) -> Strings | None:
        files = self._files
        data, offsets = string_files(name)
        if data not in files and offsets not in files:
            return None
        try:
            if len(files[offsets]) != 8 * (self.header.num_documents + 1):
                raise ValueError("it has another length than there are documents")
            return Strings(data=files[data], offsets=files[offsets].view(np.int64))
        except (KeyError, ValueError) as error:
            raise damaged(self.folder / offsets, error) from error

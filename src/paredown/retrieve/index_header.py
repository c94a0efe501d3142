"""IndexHeader: what an index is, in header.json, which is written last."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from paredown.errors import RetrievalError
from paredown.files.model_file import read_model_file
from paredown.files.refused_file import RefusedFileError
from paredown.kernels.vector_search import (
    MAX_DIMS,
    MAX_VECTORS,
    VECTOR_DTYPES,
    VectorDType,
    num_scales,
    vector_bytes,
)
from paredown.retrieve.stored_bytes import StoredBytes
from paredown.retrieve.strings import STRING_FILES, string_files
from paredown.units import MEBI

NAME = "header.json"
# Raise it with any change to the files, to the panels of these dtypes too
# (csrc/retrieve/vectors.h).
VERSION = 2
_MAX_BYTES = MEBI

IndexKind = Literal["dense", "tokens", "coil"]
Metric = Literal["cosine", "dot"]
METRICS: tuple[Metric, ...] = get_args(Metric)

VECTORS, SCALES, OFFSETS = "vectors.bin", "scales.bin", "offsets.bin"
TOKENS, DOCUMENTS = "tokens.bin", "documents.bin"
CLS, CLS_SCALES = "cls.bin", "cls.scales.bin"
_OFFSET_BYTES = 8
_NUMBER_BYTES = 4  # of a token id, and of a document's number
MAX_DOCUMENTS = 2**32


@dataclass(frozen=True, kw_only=True)
class IndexHeader:
    """`model` is the digest of the model that made the vectors, "" where nobody told. `files` are
    those beside the header, by name. A dense index has as many documents as vectors. A COIL index
    has `num_lists` lists, one for each token, and CLS vectors of `num_cls_dims` dimensions (0
    without CLS); both are 0 in other kinds."""

    kind: IndexKind
    dtype: VectorDType
    metric: Metric
    num_dims: int
    num_vectors: int
    num_documents: int
    model: str
    files: Mapping[str, StoredBytes]
    num_lists: int = 0
    num_cls_dims: int = 0
    version: int = VERSION

    def encode(self) -> bytes:
        """Returns the JSON, with a digest of its own fields."""
        document = asdict(self)
        return (json.dumps(document | {"digest": digest_of(document)}, indent=2) + "\n").encode()

    def check_model(self, model: str | None, folder: Path) -> None:
        """Raises RetrievalError unless that model, where one is named, made the vectors."""
        if model is not None and model != self.model:
            raise RetrievalError(
                f"the vectors of {folder} were made by another model",
                seen=f"{self.model or 'no model named'}, and {model} is wanted",
                remedy="Build the index with this model, or search it with the one that made it.",
            )

    def num_file_bytes(self) -> dict[str, int]:
        """Returns how long the files must be whose length follows from the other fields."""
        found = self._packed_bytes((VECTORS, SCALES), self.num_vectors, self.num_dims)
        if self.kind == "tokens":
            found[OFFSETS] = _OFFSET_BYTES * (self.num_documents + 1)
        if self.kind == "coil":
            found[OFFSETS] = _OFFSET_BYTES * (self.num_lists + 1)
            found[TOKENS] = _NUMBER_BYTES * self.num_lists
            found[DOCUMENTS] = _NUMBER_BYTES * self.num_vectors
        if self.num_cls_dims:
            found |= self._packed_bytes((CLS, CLS_SCALES), self.num_documents, self.num_cls_dims)
        return found

    def _packed_bytes(
        self, names: tuple[str, str], num_vectors: int, num_dims: int
    ) -> dict[str, int]:
        values, scales = names
        found = {values: vector_bytes(self.dtype, num_vectors, num_dims)}
        if self.dtype == "int8":
            found[scales] = 4 * num_scales(self.dtype, num_vectors)
        return found


def read_header(folder: Path) -> IndexHeader:
    """Raises RetrievalError for a folder that is no index, or not one of this version."""
    path = folder / NAME
    try:
        document = json.loads(read_model_file(path, _MAX_BYTES, folder))
    except OSError as error:
        remedy = "Name the folder of an index, or build one."
        if isinstance(error, RefusedFileError):
            remedy = error.remedy
        raise RetrievalError(
            f"{folder} is no index that can be read", seen=error.strerror or error, remedy=remedy
        ) from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, error) from error
    if not isinstance(document, dict):
        raise damaged(path, "it is no object")
    if document.get("version") != VERSION:
        raise RetrievalError(
            f"the index {folder} has another format",
            seen=f"version {document.get('version')}, this program reads {VERSION}",
            remedy="Build the index again.",
        )
    return _checked(document, path)


def damaged(path: Path, seen: object) -> RetrievalError:
    """Returns the error of a file of an index that cannot be what was written."""
    return RetrievalError(
        f"{path}: the index is damaged", seen=seen, remedy="Build the index again, or copy it."
    )


def _checked(document: dict[str, object], path: Path) -> IndexHeader:
    digest = document.pop("digest", None)
    if digest != digest_of(document) or set(document) != {one.name for one in fields(IndexHeader)}:
        raise damaged(path, "another digest or other fields than were written")
    # An intact header may still contain what our writers never write.
    try:
        files = document["files"]
        if not isinstance(files, dict):
            raise TypeError(f"files are {type(files).__name__}, no object")
        values: dict[str, Any] = {**document}
        values["files"] = {name: StoredBytes(**one) for name, one in files.items()}
        header = IndexHeader(**values)
        _check_fields(header)
    except (TypeError, ValueError) as error:
        raise damaged(path, error) from error
    return header


def _check_fields(header: IndexHeader) -> None:
    """Raises ValueError."""
    sizes = (header.num_dims, header.num_vectors, header.num_documents)
    is_sound = (
        header.kind in get_args(IndexKind)
        and header.dtype in VECTOR_DTYPES
        and header.metric in METRICS
        and all(type(size) is int and size >= 1 for size in sizes)
        and header.num_dims <= MAX_DIMS
        and header.num_vectors <= MAX_VECTORS
        and _fit_kind(header)
        and isinstance(header.model, str)
    )
    if not is_sound:
        raise ValueError("fields that no index has")
    num_file_bytes = header.num_file_bytes()
    known = {*num_file_bytes, *(one for name in STRING_FILES for one in string_files(name))}
    if unknown := header.files.keys() - known:
        raise ValueError(f"files that no such index has: {', '.join(sorted(unknown))}")
    for name, num_bytes in num_file_bytes.items():
        if name not in header.files or header.files[name].num_bytes != num_bytes:
            raise ValueError(f"{name} is missing or has another length")


def _fit_kind(header: IndexHeader) -> bool:
    """Whether an index of this kind may have so many documents and lists."""
    lists = (header.num_lists, header.num_cls_dims)
    if not all(type(size) is int for size in lists):
        return False
    if header.kind == "coil":
        # A document may have no tokens.
        return (
            1 <= header.num_lists <= header.num_vectors
            and 0 <= header.num_cls_dims <= MAX_DIMS
            and header.num_documents <= MAX_DOCUMENTS
        )
    if header.kind == "dense" and header.num_documents != header.num_vectors:
        return False
    return lists == (0, 0) and header.num_documents <= header.num_vectors


def digest_of(document: Mapping[str, object]) -> str:
    """Returns the digest that a header has of its other fields."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

"""Reads and writes importance matrices of llama.cpp's llama-imatrix: GGUF files of sums of squares
and counts, and the older form without a header (tools/imatrix/imatrix.cpp)."""

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paredown.compress.importance import ColumnImportance, Floats, Importance
from paredown.errors import CheckpointError
from paredown.files.model_file import open_model_file
from paredown.files.named_file import read_whole
from paredown.formats.gguf.floats import F32
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.whole_file import unreadable
from paredown.models.gguf.file import MappedGGUF, read_gguf, write_gguf_file
from paredown.models.gguf.header import MAGIC, NewTensor, Value
from paredown.models.gguf.names import GGUFTensor, gguf_tensors
from paredown.shown import quoted
from paredown.units import GIBI

_SUMS, _COUNTS = ".in_sum2", ".counts"
_REMEDY = "Make it again (--importance auto), or with llama-imatrix."
# Longer than any tensor's name.
_MAX_NAME_BYTES = 256
# Four bytes for each column of each linear layer are 100 MB for the largest models with experts.
_MAX_LEGACY_BYTES = GIBI
_MAX_CALLS = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class _Entries:
    """A file's sums and counts by the names of its tensors; experts have a count each, or one for
    all."""

    entries: Mapping[str, tuple[Floats, Floats]]
    text: str
    num_windows: int = 0
    num_tokens: int = 0


def read_importance(path: Path, source: Checkpoint) -> Importance:
    """Reads the entries for the tensors of `source`; a note counts the other entries. Raises
    CheckpointError for a file that is damaged, whose numbers are not sums of squares, or without a
    tensor of the model. It also raises it, with the tensor's name, for an entry of another length
    or with several counts."""
    try:
        with open_model_file(path) as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
            file.seek(0)
            raw = b"" if is_gguf else read_whole(file, path, _MAX_LEGACY_BYTES)
        found = _read_gguf(path) if is_gguf else _read_legacy(raw, path)
    except OSError as error:
        raise unreadable(path, error) from error
    modules, unknown = dict[str, ColumnImportance](), set(found.entries)
    for tensor in gguf_tensors(source.spec, source.names):
        if tensor.is_linear and tensor.name in unknown:
            unknown -= {tensor.name}
            modules |= _modules(path, tensor, *found.entries[tensor.name])
    if not modules:
        raise CheckpointError(
            f"{path} has no importance for any tensor of this model",
            seen=f"{len(unknown)} entries: {', '.join(sorted(unknown)[:3])}",
            remedy="Name the importance matrix of this model.",
        )
    return Importance(
        modules=modules,
        text=found.text,
        num_windows=found.num_windows,
        num_tokens=found.num_tokens,
        notes=_notes(path, unknown),
    )


def _notes(path: Path, unknown: Collection[str]) -> tuple[str, ...]:
    if not unknown:
        return ()
    some = ", ".join(sorted(unknown)[:3]) + (", ..." if len(unknown) > 3 else "")
    return (f"{path.name} has entries of tensors that this model has not, not used: {some}",)


def write_importance(path: Path, importance: Importance, source: Checkpoint) -> None:
    """Writes a GGUF file for llama.cpp's quantizer and `read_importance`. Raises OutputError if it
    cannot be written."""
    tensors, rows = [], []
    for tensor in gguf_tensors(source.spec, source.names):
        names = [name.removesuffix(".weight") for name in tensor.experts or (tensor.our_name,)]
        known = [importance.modules[name] for name in names if name in importance.modules]
        if not tensor.is_linear or len(known) < len(names):
            continue
        sums_EI = np.stack([one.sum_squares_I for one in known])
        counts_E1 = np.array([[one.num_rows] for one in known])
        for suffix, values in ((_SUMS, sums_EI), (_COUNTS, counts_E1)):
            new = NewTensor(name=f"{tensor.name}{suffix}", block=F32, shape=values.shape)
            tensors.append(new)
            rows.append(np.ascontiguousarray(values, np.float32).view(np.uint8))
    metadata: dict[str, Value] = {
        "general.type": "imatrix",
        "imatrix.datasets": [importance.text],
        "imatrix.chunk_count": np.uint32(importance.num_windows),
        "imatrix.chunk_size": np.uint32(importance.num_tokens),
    }
    write_gguf_file(path, metadata, tensors, rows)


def _modules(
    path: Path, tensor: GGUFTensor, sums: Floats, counts: Floats
) -> dict[str, ColumnImportance]:
    """Returns the entry of each module in the tensor."""
    names = [name.removesuffix(".weight") for name in tensor.experts or (tensor.our_name,)]
    num_columns = tensor.shape[-1]
    if counts.size not in (1, len(names)):
        raise _wrong_length(path, tensor.name, f"{counts.size} counts for {len(names)} matrices")
    if sums.size != len(names) * num_columns:
        seen = f"{sums.size} numbers for {num_columns} columns of {len(names)} matrices"
        raise _wrong_length(path, tensor.name, seen)
    is_sum = np.isfinite(sums).all() and (sums >= 0).all() and np.isfinite(counts).all()
    if not is_sum or (counts < 0).any():
        raise CheckpointError(
            f"{path}: the importance of tensor {tensor.name!r} is no sum of squares",
            seen=f"values from {sums.min()} to {sums.max()}, counts from {counts.min()}",
            remedy=_REMEDY,
        )
    counts_E = np.broadcast_to(counts, len(names))
    return {
        name: ColumnImportance(sum_squares_I=sums_I, num_rows=float(count))
        for name, sums_I, count in zip(
            names, sums.reshape(len(names), num_columns), counts_E, strict=True
        )
    }


def _wrong_length(path: Path, name: str, seen: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: the importance of tensor {name!r} has the wrong length",
        seen=seen,
        remedy="Name the importance matrix of this model.",
    )


def _read_gguf(path: Path) -> _Entries:
    file = read_gguf(path)
    if file.metadata.get("general.type") != "imatrix":
        raise _damaged(path, f"general.type {quoted(file.metadata.get('general.type'))}")
    entries = {}
    for own in dict.fromkeys(
        name.removesuffix(_SUMS).removesuffix(_COUNTS) for name in file.places
    ):
        present = [f"{own}{suffix}" in file.places for suffix in (_SUMS, _COUNTS)]
        if not any(present):
            continue
        if not all(present):
            raise _damaged(path, f"no {own}{_COUNTS if present[0] else _SUMS}")
        sums, counts = (_floats(path, file, f"{own}{suffix}") for suffix in (_SUMS, _COUNTS))
        entries[own] = sums, counts
    datasets = file.metadata.get("imatrix.datasets")
    text = ", ".join(map(str, datasets)) if isinstance(datasets, list) else path.name
    sizes = [file.metadata.get(f"imatrix.chunk_{one}") for one in ("count", "size")]
    num_windows, num_tokens = (int(one) if isinstance(one, np.integer) else 0 for one in sizes)
    return _Entries(entries=entries, text=text, num_windows=num_windows, num_tokens=num_tokens)


def _floats(path: Path, file: MappedGGUF, name: str) -> Floats:
    if file.places[name].block is not F32:
        raise _damaged(path, f"{name} in {file.places[name].block.name}")
    found: Floats = F32.decode(file.rows(name)).dequantize().reshape(-1)
    return found


def _read_legacy(raw: bytes, path: Path) -> _Entries:
    """Parses the entries: each has a name, a number of calls, and means times that number. Newer
    files end with the number of windows and the name of the text."""
    reader = _Legacy(raw, path)
    entries = dict[str, tuple[Floats, Floats]]()
    for _ in range(reader.count()):
        name = reader.text(_MAX_NAME_BYTES)
        if name in entries:
            raise _damaged(path, f"{name} twice")
        num_calls, num_values = reader.count(_MAX_CALLS), reader.count()
        values = np.frombuffer(reader.take(4 * num_values), "<f4").astype(np.float32)
        entries[name] = values, np.array([num_calls], np.float32)
    text, num_windows = path.name, 0
    if not reader.is_at_end:
        num_windows = reader.count(_MAX_CALLS)
        text = reader.text(len(raw)) or text
        if not reader.is_at_end:
            raise _damaged(path, "bytes behind its end")
    return _Entries(entries=entries, text=text, num_windows=num_windows)


class _Legacy:
    """Reads numbers and bytes in order. Raises CheckpointError where they end too soon."""

    def __init__(self, raw: bytes, path: Path) -> None:
        self._raw, self._path, self._position = raw, path, 0

    def count(self, largest: int | None = None) -> int:
        """Reads the number of items that follow."""
        (found,) = struct.unpack("<i", self.take(4))
        if found < 0 or found > (len(self._raw) if largest is None else largest):
            raise _damaged(self._path, f"a count of {found}")
        return int(found)

    @property
    def is_at_end(self) -> bool:
        """Whether every byte was read."""
        return self._position == len(self._raw)

    def text(self, largest: int) -> str:
        """Reads a name of at most that many bytes, after its length."""
        return self.take(self.count(largest)).decode("utf-8", "replace")

    def take(self, num_bytes: int) -> bytes:
        """Reads the next bytes."""
        part = self._raw[self._position : self._position + num_bytes]
        if len(part) != num_bytes:
            raise _damaged(self._path, f"{len(self._raw)} bytes")
        self._position += num_bytes
        return part


def _damaged(path: Path, seen: str) -> CheckpointError:
    return CheckpointError(f"{path} is no importance matrix, or damaged", seen=seen, remedy=_REMEDY)

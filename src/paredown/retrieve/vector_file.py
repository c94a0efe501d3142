"""VectorWriter: packs vectors that come in batches into the files of an index.

Search wants them in panels, 64 vectors at a time, so up to 63 wait for those that follow.
"""

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from paredown.errors import CapacityError
from paredown.kernels.vector_search import MAX_VECTORS, UNIT, VectorDType, pack_vectors
from paredown.retrieve.index_header import SCALES, VECTORS, Metric
from paredown.retrieve.stored_bytes import BytesWriter, StoredBytes, large_writer
from paredown.retrieve.vectors import Floats, check_dims, unit_length

# Vectors that are packed in one call, so that memory stays bounded however large a batch is.
_PACKED_AT_ONCE = 64 * UNIT


class VectorWriter:
    """The first vectors settle the number of dimensions. Files are closed with `stack`; `names` are
    those of the values and of their scales."""

    def __init__(
        self,
        folder: Path,
        dtype: VectorDType,
        metric: Metric,
        stack: ExitStack,
        names: tuple[str, str] = (VECTORS, SCALES),
    ) -> None:
        self._dtype, self._metric, self._names = dtype, metric, names
        self._values: BytesWriter = stack.enter_context(large_writer(folder / names[0]))
        self._scales: BytesWriter | None = None
        if dtype == "int8":
            self._scales = stack.enter_context(BytesWriter(folder / names[1]))
        self._waiting: Floats | None = None
        self.num_vectors = 0

    @property
    def num_dims(self) -> int:
        """The dimensions of a vector; 0 before there is one."""
        return 0 if self._waiting is None else self._waiting.shape[1]

    def check(self, vectors_ND: Floats) -> None:
        """Raises ConfigError for unlike dimensions, and CapacityError for more vectors than an
        index has."""
        check_dims(vectors_ND, self.num_dims or vectors_ND.shape[1], "vectors of an index")
        check_capacity("vectors", self.num_vectors + len(vectors_ND), MAX_VECTORS)

    def add(self, vectors_ND: Floats) -> None:
        """Raises what `check` raises, and OSError."""
        self.check(vectors_ND)
        if self._waiting is None:
            self._waiting = vectors_ND[:0].copy()
        for start in range(0, len(vectors_ND), _PACKED_AT_ONCE):
            self._add_some(vectors_ND[start : start + _PACKED_AT_ONCE])

    def finish(self) -> dict[str, StoredBytes]:
        """Returns the files by name. Raises OSError."""
        if self._waiting is not None and len(self._waiting):
            self._pack(self._waiting)
        files = {self._names[0]: self._values.finish()}
        if self._scales is not None:
            files[self._names[1]] = self._scales.finish()
        return files

    def _add_some(self, vectors_ND: Floats) -> None:
        assert self._waiting is not None
        if self._metric == "cosine":
            vectors_ND = unit_length(vectors_ND)
        together = np.concatenate([self._waiting, vectors_ND])
        num_whole = len(together) // UNIT * UNIT
        if num_whole:
            self._pack(together[:num_whole])
        self._waiting = together[num_whole:].copy()
        self.num_vectors += len(vectors_ND)

    def _pack(self, vectors_ND: Floats) -> None:
        values, scales = pack_vectors(self._dtype, vectors_ND)
        self._values.write(values)
        if self._scales is not None:
            self._scales.write(scales)


def check_capacity(what: str, number: int, most: int) -> None:
    """Raises CapacityError for more of them than an index has."""
    if number > most:
        raise CapacityError(
            f"an index holds no more {what}",
            seen=f"{number:,} of {most:,}",
            remedy="Split them over several indexes.",
        )

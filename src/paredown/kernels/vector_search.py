"""Vectors of an index in the core's layout, and exact search among them (csrc/retrieve).

Letters: Q queries, N vectors, T tokens, D dimensions, K hits.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from paredown.kernels import _core
from paredown.kernels.isa import chosen_isa

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
VectorDType = Literal["fp32", "bf16", "int8"]
VECTOR_DTYPES: tuple[VectorDType, ...] = ("fp32", "bf16", "int8")

MAX_DIMS = _core.MAX_VECTOR_DIMS
MAX_VECTORS = _core.MAX_VECTORS
# Packed vectors are padded to a multiple of so many.
UNIT = _core.VECTOR_UNIT


def vector_bytes(dtype: VectorDType, num_vectors: int, num_dims: int) -> int:
    """Returns the bytes of packed vectors without their scales."""
    return _core.vector_bytes(dtype, num_vectors, num_dims)


def num_scales(dtype: VectorDType, num_vectors: int) -> int:
    """Returns how many scales lie beside packed vectors: one for each in int8, padding included."""
    return -(-num_vectors // UNIT) * UNIT if dtype == "int8" else 0


def pack_vectors(dtype: VectorDType, vectors_ND: Floats) -> tuple[Bytes, Floats]:
    """Packs finite vectors; all but the last call for a file take a multiple of UNIT.

    int8 codes are symmetric: the largest magnitude of a vector becomes 127."""
    num_vectors, num_dims = vectors_ND.shape
    values = np.empty(vector_bytes(dtype, num_vectors, num_dims), np.uint8)
    scales = np.empty(num_scales(dtype, num_vectors), np.float32)
    _core.pack_vectors(dtype, np.ascontiguousarray(vectors_ND), values, scales)
    return values, scales


def unpack_vectors(
    dtype: VectorDType, values: Bytes, scales_N: Floats, num_vectors: int, num_dims: int
) -> Floats:
    """Returns packed vectors [num_vectors, num_dims] as search meets them."""
    vectors_ND = np.empty((num_vectors, num_dims), np.float32)
    _core.unpack_vectors(dtype, values, scales_N, vectors_ND)
    return vectors_ND


@dataclass(frozen=True, kw_only=True)
class PackedVectors:
    """Vectors as `pack_vectors` made them, aligned to 64 bytes. `scales` is empty but for int8."""

    num_dims: int
    values: Bytes
    scales: Floats


class VectorSearch:
    """Search among packed vectors, which must stay as they are. Any thread may call it; one search
    runs at a time, without Python's lock.

    Scores and the order of hits do not depend on the number of threads, nor on what other queries
    there are. Where scores are the same, the lower number comes first."""

    def __init__(
        self,
        dtype: VectorDType,
        shape: tuple[int, int],
        values: Bytes,
        scales_N: Floats | None = None,
        *,
        offsets: Ints | None = None,
        num_threads: int,
    ) -> None:
        """`shape` is [N, D]. `values` are aligned to 64 bytes. `offsets` make the vectors tokens of
        documents: document i has [offsets[i], offsets[i + 1]). Raises ValueError for arrays that do
        not fit."""
        self.num_vectors, self.num_dims = shape
        self._core = _core.VectorSearch(
            chosen_isa(),
            num_threads,
            dtype,
            self.num_vectors,
            self.num_dims,
            values,
            scales_N,
            offsets,
        )
        self.num_documents = self.num_vectors if offsets is None else len(offsets) - 1

    def top(self, queries_QD: Floats, num_hits: int) -> tuple[Floats, Ints]:
        """Returns the scores and numbers [Q, K] of the vectors with the largest dot products.
        K is `num_hits`, or all vectors."""
        found = self._room(len(queries_QD), num_hits)
        self._core.top(np.ascontiguousarray(queries_QD), *found)
        return found

    def top_max_sim(
        self, tokens_TD: Floats, query_offsets: Ints, num_hits: int
    ) -> tuple[Floats, Ints]:
        """Returns the scores and numbers [Q, K] of the documents with the largest MaxSim. Query i
        has tokens [query_offsets[i], query_offsets[i + 1])."""
        found = self._room(len(query_offsets) - 1, num_hits)
        self._core.top_max_sim(np.ascontiguousarray(tokens_TD), query_offsets, *found)
        return found

    def _room(self, num_queries: int, num_hits: int) -> tuple[Floats, Ints]:
        shape = (num_queries, min(num_hits, self.num_documents))
        return np.empty(shape, np.float32), np.empty(shape, np.int64)

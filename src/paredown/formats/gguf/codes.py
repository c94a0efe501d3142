"""Codes of 32 columns under one fp16 scale d, which may be negative: the common part of Q4_0, Q5_0
and Q8_0. They become symmetric groups of 32 with the same codes."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.floating import check_finite
from paredown.formats.gguf.block_format import CHUNK_VALUES, Bytes, Floats
from paredown.formats.gguf.unpack import SCALE_BYTES, half
from paredown.formats.grid_weight import GridWeight
from paredown.formats.integer import group_columns
from paredown.spec.weight import WeightDType, WeightSpec

BLOCK_COLUMNS = 32


def spec_of(dtype: WeightDType) -> WeightSpec:
    return WeightSpec(dtype=dtype, group_size=BLOCK_COLUMNS)


def decode_codes(
    rows_OB: Bytes, name: str, spec: WeightSpec, unpack: Callable[[Bytes], Bytes]
) -> GridWeight:
    """Decodes the rows; `unpack` returns the unsigned codes of the bytes after the scales. Raises
    CheckpointError for scales that are not finite."""
    num_rows = len(rows_OB)
    block_bytes = SCALE_BYTES + BLOCK_COLUMNS * spec.bits // 8
    blocks_NB = np.ascontiguousarray(rows_OB).reshape(-1, block_bytes)
    scales = half(blocks_NB, 0).reshape(num_rows, -1)
    if not np.isfinite(scales).all():
        raise CheckpointError(
            f"a {name} tensor holds scales that are not finite numbers",
            seen="NaN or infinity",
            remedy="Download the file again.",
        )
    codes_OI = unpack(blocks_NB[:, SCALE_BYTES:]).reshape(num_rows, -1)
    return GridWeight(spec=spec, values_OI=codes_OI, scales_OG=scales, scale_dtype="fp16")


def encode_codes(weight: GridWeight, pack: Callable[[Bytes], Bytes]) -> Bytes:
    """Encodes the rows; `pack` is the inverse of `unpack`. Raises UnsupportedError for scales that
    are not fp16 numbers."""
    assert weight.scales_OG is not None
    halves = _storable_halves(weight.scales_OG)
    codes_NC = np.asarray(weight.values_OI, np.uint8).reshape(-1, BLOCK_COLUMNS)
    scales_NB = np.ascontiguousarray(halves).reshape(-1, 1).view(np.uint8)
    return np.concatenate([scales_NB, pack(codes_NC)], axis=1).reshape(len(weight.values_OI), -1)


def quantize_codes(
    values_OI: Floats,
    name: str,
    spec: WeightSpec,
    codes_of: Callable[[Floats], tuple[Floats, Bytes]],
) -> GridWeight:
    """Quantizes [O, I] values; `codes_of` finds the scales [N, 1] and codes of blocks of values.
    Raises UnsupportedError if 32 does not divide the columns or a scale exceeds fp16,
    CheckpointError for values that are not finite."""
    num_rows, num_columns = values_OI.shape
    group_columns(spec, num_columns)
    codes_OI = np.empty(values_OI.shape, np.uint8)
    scales_OG = np.empty((num_rows, num_columns // BLOCK_COLUMNS), np.float32)
    chunk_rows = max(1, CHUNK_VALUES // num_columns)
    for start in range(0, num_rows, chunk_rows):
        rows = slice(start, start + chunk_rows)
        chunk = np.ascontiguousarray(values_OI[rows], np.float32)
        check_finite(chunk)
        scales, codes = codes_of(chunk.reshape(-1, BLOCK_COLUMNS))
        codes_OI[rows] = codes.reshape(chunk.shape)
        with np.errstate(over="ignore"):
            halves = scales.astype(np.float16).astype(np.float32)
        if not np.isfinite(halves).all():
            raise UnsupportedError(
                f"{name} cannot hold weights this large: its scales are fp16",
                seen=f"a scale of {np.abs(scales).max():.4g}, at most {np.finfo(np.float16).max}",
                remedy="Write the file in bf16.",
            )
        scales_OG[rows] = halves.reshape(len(chunk), -1)
    return GridWeight(spec=spec, values_OI=codes_OI, scales_OG=scales_OG, scale_dtype="fp16")


def inverse(d: Floats) -> Floats:
    """Returns 1 / d, or 0 where that is infinite: llama.cpp leaves the codes of such small values
    undefined."""
    with np.errstate(divide="ignore", over="ignore"):
        found = np.float32(1) / d
    return np.where(np.isfinite(found), found, np.float32(0))


def _storable_halves(scales_OG: Floats) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = scales_OG.astype(np.float16)
    changed = halves.astype(np.float32) != scales_OG
    if changed.any():
        raise UnsupportedError(
            "GGUF's block formats have fp16 scales, and these are not",
            seen=f"{float(scales_OG[changed][0])!r} and {int(changed.sum()) - 1} more scales",
            remedy="Quantize the original to GGUF (gguf-q4_0, gguf-q8_0) instead.",
        )
    return halves

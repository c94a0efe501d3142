"""Rounds to nearest on integer grids, by the conventions of compressed-tensors.

Signed codes q of b bits lie in [-2^(b-1), 2^(b-1) - 1]. A group of a row's columns shares a scale
s and a zero point z, and the value of a code is (q - z) * s. With m and M the smallest and largest
of the group's values and 0:

    symmetric   s = max(-m, M) / ((2^b - 1) / 2)      z = 0
    asymmetric  s = (M - m) / (2^b - 1)               z = round(clamp(-2^(b-1) - m / s))
    both        q = round(clamp(w / s + z))

Ties round to even. s is rounded to its stored dtype before z and q follow from it; a group of
zeros gets that dtype's machine epsilon. `GridWeight` keeps unsigned codes, q + 2^(b-1).
"""

import numpy as np
import numpy.typing as npt

from paredown.errors import UnsupportedError
from paredown.formats.floating import MAX_FINITE, check_finite, round_to
from paredown.formats.grid_weight import GridWeight
from paredown.spec.weight import ScaleDType, WeightSpec

# The distance from 1 to the next number replaces a scale of zero.
EPSILON: dict[ScaleDType, float] = {"fp32": 2.0**-23, "bf16": 2.0**-7, "fp16": 2.0**-10}

# Values quantized at once; this limits the temporary floats to a few megabytes.
_CHUNK_VALUES = 1 << 20


def quantize_integer(
    values_OI: npt.NDArray[np.float32], spec: WeightSpec, scale_dtype: ScaleDType
) -> GridWeight:
    """Rounds [O, I] values to the grid of an integer `spec`.

    Raises UnsupportedError if the group size does not divide the columns, CheckpointError for
    values that are not finite.
    """
    assert spec.is_integer, spec.name
    num_rows, num_columns = values_OI.shape
    num_groups = num_columns // group_columns(spec, num_columns)
    codes_OI = np.empty((num_rows, num_columns), np.uint8)
    scales_OG = np.empty((num_rows, num_groups), np.float32)
    zeros_OG = np.empty((num_rows, num_groups), np.uint8)
    chunk_rows = max(1, _CHUNK_VALUES // max(1, num_columns))
    for start in range(0, num_rows, chunk_rows):
        rows = slice(start, start + chunk_rows)
        chunk = np.ascontiguousarray(values_OI[rows], dtype=np.float32)
        check_finite(chunk)
        codes, scales_OG[rows], zeros_OG[rows] = _quantize_rows(
            chunk.reshape(chunk.shape[0], num_groups, -1), spec, scale_dtype
        )
        codes_OI[rows] = codes.reshape(chunk.shape)
    return GridWeight(
        spec=spec,
        values_OI=codes_OI,
        scales_OG=scales_OG,
        zero_points_OG=None if spec.symmetric else zeros_OG,
        scale_dtype=scale_dtype,
    )


def group_columns(spec: WeightSpec, num_columns: int) -> int:
    """Returns the columns that share a scale. Raises UnsupportedError if groups do not divide the
    row."""
    if spec.group_size is None:
        return num_columns
    if num_columns % spec.group_size != 0:
        raise UnsupportedError(
            f"groups of {spec.group_size} columns do not divide a weight of {num_columns} columns",
            seen=f"{num_columns} = {num_columns // spec.group_size} x {spec.group_size} + "
            f"{num_columns % spec.group_size}",
            remedy="Choose smaller groups (int4-g128-g64-g32 has the largest that divide a layer), "
            "or a format without groups (int8).",
        )
    return spec.group_size


def _quantize_rows(
    values_OGC: npt.NDArray[np.float32], spec: WeightSpec, scale_dtype: ScaleDType
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    half = 1 << (spec.bits - 1)
    low, high = np.float32(-half), np.float32(half - 1)
    lowest_OG = np.minimum(values_OGC.min(axis=2), np.float32(0))
    highest_OG = np.maximum(values_OGC.max(axis=2), np.float32(0))
    if spec.symmetric:
        scales_OG = np.maximum(-lowest_OG, highest_OG) / np.float32((high - low) / 2)
    else:
        # Each is halved first: the difference of two large values may exceed the largest float.
        scales_OG = (highest_OG / 2 - lowest_OG / 2) / np.float32((high - low) / 2)
    scales_OG = storable_scales(scales_OG, scale_dtype)
    if spec.symmetric:
        zeros_OG = np.zeros_like(scales_OG)
    else:
        zeros_OG = np.rint(np.clip(low - lowest_OG / scales_OG, low, high))
    codes = values_OGC / scales_OG[:, :, None]
    codes += zeros_OG[:, :, None]
    np.clip(codes, low, high, out=codes)
    np.rint(codes, out=codes)
    codes += half
    return codes.astype(np.uint8), scales_OG, (zeros_OG + half).astype(np.uint8)


def storable_scales(scales: npt.NDArray[np.float32], dtype: ScaleDType) -> npt.NDArray[np.float32]:
    """Rounds scales to `dtype` and keeps them finite and nonzero."""
    limit = np.float32(MAX_FINITE[dtype])
    rounded = round_to(np.minimum(scales, limit), dtype)
    return np.where(rounded == 0, np.float32(EPSILON[dtype]), rounded)

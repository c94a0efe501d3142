"""Float formats: rounds to nearest even and counts the values beyond the format's range."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError
from paredown.formats.tensor import (
    STORED_AS,
    StoredTensor,
    bf16_to_float32,
    float32_to_bf16,
)
from paredown.spec.weight import ScaleDType

# Values checked at once; this limits the float32 copies to a few megabytes.
_CHECKED_VALUES = 1 << 20

# The largest finite value of each format.
MAX_FINITE: dict[ScaleDType, float] = {
    "fp32": float(np.finfo(np.float32).max),
    "bf16": float(bf16_to_float32(np.array([0x7F7F], np.uint16))[0]),
    "fp16": float(np.finfo(np.float16).max),
}


@dataclass(frozen=True, kw_only=True)
class Cast:
    """`num_clamped` values exceeded the format's largest finite one and were set to it."""

    tensor: StoredTensor
    num_clamped: int


def round_to(values: npt.NDArray[np.float32], dtype: ScaleDType) -> npt.NDArray[np.float32]:
    """Rounds float32 values to `dtype` and back; values beyond its range become infinite."""
    if dtype == "bf16":
        return bf16_to_float32(float32_to_bf16(values))
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    return values.astype(np.float32, copy=False)


def cast(values: npt.NDArray[np.float32], dtype: ScaleDType) -> Cast:
    """Converts an array of any shape to `dtype`, clamped to its finite range. Raises
    CheckpointError for values that are not finite."""
    check_finite(values)
    limit = np.float32(MAX_FINITE[dtype])
    outside = np.abs(round_to(values, dtype)) > limit
    clamped = np.clip(values, -limit, limit)
    if dtype == "bf16":
        array: npt.NDArray[np.generic] = float32_to_bf16(clamped)
    else:
        array = clamped.astype(np.float16 if dtype == "fp16" else np.float32)
    tensor = StoredTensor(dtype=STORED_AS[dtype], array=array)
    return Cast(tensor=tensor, num_clamped=int(np.count_nonzero(outside)))


def check_stored(tensor: StoredTensor) -> None:
    """Does what `check_finite` does, on one stretch of the values at a time."""
    flat = tensor.array.reshape(-1)
    for start in range(0, flat.size, _CHECKED_VALUES):
        part = StoredTensor(dtype=tensor.dtype, array=flat[start : start + _CHECKED_VALUES])
        if not np.isfinite(part.to_float32()).all():
            check_finite(tensor.to_float32())


def check_finite(values: npt.NDArray[np.float32]) -> None:
    """Raises CheckpointError that names the first value that is NaN or infinite."""
    finite = np.isfinite(values)
    if not finite.all():
        index = np.unravel_index(int(np.argmin(finite)), values.shape)
        position = [int(i) for i in index]
        raise CheckpointError(
            "a weight holds values that are not finite numbers",
            seen=f"{values[index]} at {position}, {int(np.count_nonzero(~finite))} in all",
            remedy="The checkpoint is damaged or its training diverged; use another one.",
        )

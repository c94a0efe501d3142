"""StoredTensor: an array as a safetensors file holds it. NumPy has no bfloat16: bits are kept."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from paredown.spec.weight import ScaleDType

StoredDType = Literal["F32", "F16", "BF16", "F8_E4M3", "I8", "U8", "I16", "I32", "I64"]

NUMPY_DTYPES: dict[StoredDType, npt.DTypeLike] = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "I8": np.int8,
    "U8": np.uint8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
}

# The float dtypes of stored weights and scales, by their names in safetensors; and the inverse.
STORED_DTYPES: dict[StoredDType, ScaleDType] = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}
STORED_AS: dict[ScaleDType, StoredDType] = {ours: stored for stored, ours in STORED_DTYPES.items()}


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """`array` has the dtype NUMPY_DTYPES[dtype]. For BF16 and F8_E4M3 that is an unsigned integer
    that holds the bits."""

    dtype: StoredDType
    array: npt.NDArray[np.generic]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def to_float32(self) -> npt.NDArray[np.float32]:
        """Returns the values as float32, exactly; fp8 numbers have no meaning without their
        scales."""
        assert self.dtype != "F8_E4M3"
        if self.dtype == "BF16":
            return bf16_to_float32(self.array)
        return self.array.astype(np.float32)

    def transposed(self) -> "StoredTensor":
        """Returns the matrix with its rows as columns, in memory of its own."""
        return StoredTensor(dtype=self.dtype, array=np.ascontiguousarray(self.array.T))


def bf16_to_float32(bits: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """Converts uint16 bfloat16 bits to float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def float32_to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Converts float32 to bfloat16 bits, rounding to nearest even; NaN stays a quiet NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)

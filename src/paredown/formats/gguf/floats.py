"""The float tensors of GGUF: plain numbers, in blocks of one."""

from functools import partial

import numpy as np
import numpy.typing as npt

from paredown.formats.gguf.block_format import BlockFormat, Bytes
from paredown.formats.grid_weight import GridWeight
from paredown.spec.weight import ScaleDType, WeightSpec

_NUMPY_DTYPES: dict[ScaleDType, npt.DTypeLike] = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": np.uint16,
}


def decode(rows_OB: Bytes, dtype: ScaleDType) -> GridWeight:
    floats_OI = np.ascontiguousarray(rows_OB).view(_NUMPY_DTYPES[dtype])
    # A file's alignment may be smaller than that of its numbers.
    floats_OI = floats_OI if floats_OI.flags.aligned else floats_OI.copy()
    return GridWeight(spec=WeightSpec(dtype=dtype), values_OI=floats_OI)


def encode(weight: GridWeight) -> Bytes:
    return np.ascontiguousarray(weight.values_OI).view(np.uint8)


def _row(name: str, type_id: int, dtype: ScaleDType, file_type: int) -> BlockFormat:
    spec = WeightSpec(dtype=dtype)
    return BlockFormat(
        name=name,
        type_id=type_id,
        block_columns=1,
        block_bytes=spec.bits // 8,
        spec=spec,
        decode=partial(decode, dtype=dtype),
        encode=encode,
        file_type=file_type,
    )


F32 = _row("F32", 0, "fp32", 0)
F16 = _row("F16", 1, "fp16", 1)
BF16 = _row("BF16", 30, "bf16", 32)

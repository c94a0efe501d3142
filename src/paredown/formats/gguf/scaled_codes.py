"""Super-blocks whose values are integers times a scale per group of columns. They run as codes on
a grid with the file's exact numbers, though a code may take more bits than in the file."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError
from paredown.formats.gguf.block_format import CHUNK_VALUES, BlockFormat, Bytes, Floats
from paredown.formats.grid_weight import GridWeight
from paredown.spec.weight import WeightSpec

Codes = npt.NDArray[np.int8]
# Takes N blocks [N, bytes] and returns their scales [N, groups] and signed codes [N, columns].
Unpack = Callable[[Bytes], tuple[Floats, Codes]]


def decode_scaled_codes(
    rows_OB: Bytes, name: str, spec: WeightSpec, block_bytes: int, unpack: Unpack
) -> GridWeight:
    """Decodes some rows at a time. Raises CheckpointError for scales that are not finite."""
    chunk_rows = max(1, CHUNK_VALUES // max(1, rows_OB.shape[1]))
    offset = np.int16(1 << spec.bits - 1)
    scales, codes = [], []
    for start in range(0, len(rows_OB), chunk_rows):
        chunk = np.ascontiguousarray(rows_OB[start : start + chunk_rows])
        found, signed = unpack(chunk.reshape(-1, block_bytes))
        scales.append(found.reshape(len(chunk), -1))
        codes.append((signed + offset).astype(np.uint8).reshape(len(chunk), -1))
    scales_OG = np.concatenate(scales)
    if not np.isfinite(scales_OG).all():
        raise CheckpointError(
            f"a {name} tensor holds scales that are not finite numbers",
            seen="NaN or infinity",
            remedy="Download the file again.",
        )
    return GridWeight(
        spec=spec, values_OI=np.concatenate(codes), scales_OG=scales_OG, scale_dtype="fp32"
    )


def scaled_codes_format(
    name: str, type_id: int, block_bytes: int, spec: WeightSpec, unpack: Unpack, file_type: int
) -> BlockFormat:
    """Builds the table row of a type with super-blocks of 256 columns."""
    return BlockFormat(
        name=name,
        type_id=type_id,
        block_columns=256,
        block_bytes=block_bytes,
        spec=spec,
        decode=lambda rows_OB: decode_scaled_codes(rows_OB, name, spec, block_bytes, unpack),
        file_type=file_type,
    )

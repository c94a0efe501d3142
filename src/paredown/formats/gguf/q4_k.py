"""Q4_K: super-blocks of 256 columns under d and m (fp16), s and t of 6 bits with every 32 columns,
w = q (d s) - m t. It runs as it is stored; its values have the roundings of llama.cpp."""

import numpy as np

from paredown.errors import CheckpointError
from paredown.formats.block_weight import BlockWeight
from paredown.formats.gguf import six_bits
from paredown.formats.gguf.block_format import BlockFormat, Bytes, Floats
from paredown.formats.gguf.unpack import half
from paredown.spec.weight import WeightSpec

NAME = "Q4_K"
BLOCK_BYTES = 144
SPEC = WeightSpec(dtype="q4_k")


def decode(rows_OB: Bytes) -> BlockWeight:
    """The rows as they are. Raises CheckpointError for scales that are not finite numbers."""
    halves_OB2 = rows_OB.reshape(len(rows_OB), -1, BLOCK_BYTES)[:, :, :4]
    if not np.isfinite(np.ascontiguousarray(halves_OB2).view(np.float16)).all():
        raise CheckpointError(
            f"a {NAME} tensor holds scales that are not finite numbers",
            seen="NaN or infinity",
            remedy="Download the file again.",
        )
    return BlockWeight(spec=SPEC, rows_OB=rows_OB, to_floats=dequantize)


def encode(weight: BlockWeight) -> Bytes:
    return weight.rows_OB


def dequantize(blocks_NB: Bytes) -> Floats:
    """Eight groups of 32; two of them share 32 bytes, one in the low halves."""
    d, m = half(blocks_NB, 0), half(blocks_NB, 2)
    s, t = six_bits.unpack(blocks_NB[:, 4:16])
    pairs = blocks_NB[:, 16:].reshape(-1, 4, 32)
    codes_NGC = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)
    scale, minimum = d * s.astype(np.float32), m * t.astype(np.float32)
    return codes_NGC.astype(np.float32) * scale[:, :, None] - minimum[:, :, None]


FORMAT = BlockFormat(
    name=NAME,
    type_id=12,
    block_columns=256,
    block_bytes=BLOCK_BYTES,
    spec=SPEC,
    decode=decode,
    encode=encode,
    file_type=14,
)

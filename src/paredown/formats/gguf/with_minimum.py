"""Q4_1 and Q5_1: 32 columns under d and m (fp16), w = q d + m, the codes as in Q4_0 and Q5_0. They
run dequantized, with the roundings of llama.cpp."""

from collections.abc import Callable
from functools import partial

import numpy as np

from paredown.formats.gguf.block_format import BlockFormat, Bytes, Floats
from paredown.formats.gguf.unpack import dequantized, fifth_bits, half, nibbles
from paredown.spec.weight import WeightSpec


def _q4_1(blocks_NB: Bytes) -> Floats:
    d, m = half(blocks_NB, 0), half(blocks_NB, 2)
    return nibbles(blocks_NB[:, 4:]).astype(np.float32) * d + m


def _q5_1(blocks_NB: Bytes) -> Floats:
    d, m = half(blocks_NB, 0), half(blocks_NB, 2)
    codes = nibbles(blocks_NB[:, 8:]) | fifth_bits(blocks_NB[:, 4:8])
    return codes.astype(np.float32) * d + m


def _row(
    name: str, type_id: int, block_bytes: int, dequantize: Callable[[Bytes], Floats]
) -> BlockFormat:
    return BlockFormat(
        name=name,
        type_id=type_id,
        block_columns=32,
        block_bytes=block_bytes,
        spec=WeightSpec(dtype="fp32"),
        is_exact=False,
        decode=partial(dequantized, block_bytes=block_bytes, dequantize=dequantize),
    )


Q4_1 = _row("Q4_1", 3, 20, _q4_1)
Q5_1 = _row("Q5_1", 7, 24, _q5_1)

"""Q4_K: super-blocks of 256 columns under d and m (fp16), s and t of 6 bits with every 32 columns,
w = q (d s) - m t."""

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.blocks import block_format, finite_halves
from paredown.formats.gguf.six_bits import scales_and_minima
from paredown.formats.gguf.unpack import nibble_pairs


def dequantize(blocks_NB: Bytes) -> Floats:
    """Eight groups of 32; two of them share 32 bytes, one in the low halves."""
    scale, minimum = scales_and_minima(blocks_NB)
    values: Floats = nibble_pairs(blocks_NB[:, 16:]) * scale[:, :, None] - minimum[:, :, None]
    return values


FORMAT = block_format("Q4_K", 12, "q4_k", dequantize, are_numbers=finite_halves(0, 2), file_type=14)

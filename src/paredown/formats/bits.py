"""Codes of b bits packed into int32 words, as compressed-tensors stores them.

Element i of a row starts at bit i * b of the row; words are little-endian, low bits come first,
and a row is padded with zero bits to whole words.
"""

import numpy as np
import numpy.typing as npt

WORD_BYTES = 4


def num_words(num_codes: int, bits: int) -> int:
    """Words that a row of `num_codes` codes takes."""
    return -(-num_codes * bits // (8 * WORD_BYTES))


def pack_bits(codes_RC: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.int32]:
    """[R, C] unsigned codes below 2**bits to [R, ceil(C * bits / 32)] words; bits is 1, 2, 4 or 8
    (wider steps would let a code straddle two bytes)."""
    assert 8 % bits == 0, bits
    num_rows, num_codes = codes_RC.shape
    words = num_words(num_codes, bits)
    per_byte = 8 // bits
    padded = np.zeros((num_rows, words * WORD_BYTES * per_byte), np.uint8)
    padded[:, :num_codes] = codes_RC
    packed = padded[:, 0::per_byte].copy()
    for position in range(1, per_byte):
        packed |= padded[:, position::per_byte] << np.uint8(position * bits)
    return packed.view("<i4").astype(np.int32, copy=False)


def unpack_bits(
    words_RW: npt.NDArray[np.int32], bits: int, num_codes: int
) -> npt.NDArray[np.uint8]:
    """[R, W] words back to [R, num_codes] unsigned codes; the padding is dropped."""
    assert 8 % bits == 0, bits
    octets = np.ascontiguousarray(words_RW, dtype="<i4").view(np.uint8)
    per_byte = 8 // bits
    codes = np.empty((octets.shape[0], octets.shape[1] * per_byte), np.uint8)
    mask = np.uint8((1 << bits) - 1)
    for position in range(per_byte):
        codes[:, position::per_byte] = (octets >> np.uint8(position * bits)) & mask
    return np.ascontiguousarray(codes[:, :num_codes])

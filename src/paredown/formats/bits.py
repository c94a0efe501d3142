"""Codes of b bits packed into int32 words, as compressed-tensors stores them.

Element i of a row starts at bit i * b of the row; words are little-endian, low bits come first,
and a row is padded with zero bits to whole words.
"""

import numpy as np
import numpy.typing as npt

WORD_BYTES = 4
# Eight codes of any width fill whole bytes and fit in 64 bits.
_CODES = 8


def num_words(num_codes: int, bits: int) -> int:
    """Returns the number of words for a row of `num_codes` codes."""
    return -(-num_codes * bits // (8 * WORD_BYTES))


def pack_bits(codes_RC: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.int32]:
    """Packs [R, C] unsigned codes below 2**bits into [R, ceil(C * bits / 32)] words; bits is 1 to
    8."""
    num_rows, num_codes = codes_RC.shape
    padded = np.zeros((num_rows, -(-num_codes // _CODES) * _CODES), np.uint8)
    padded[:, :num_codes] = codes_RC
    runs = np.zeros((num_rows, padded.shape[1] // _CODES), "<u8")
    for position in range(_CODES):
        runs |= padded[:, position::_CODES].astype("<u8") << np.uint64(position * bits)
    octets = runs.view(np.uint8).reshape(num_rows, -1, _CODES)[:, :, :bits].reshape(num_rows, -1)
    row_bytes = num_words(num_codes, bits) * WORD_BYTES
    packed = np.zeros((num_rows, row_bytes), np.uint8)
    # The last run's padding of zeros may extend beyond the last word.
    num_bytes = min(row_bytes, octets.shape[1])
    packed[:, :num_bytes] = octets[:, :num_bytes]
    return packed.view("<i4").astype(np.int32, copy=False)


def unpack_bits(
    words_RW: npt.NDArray[np.int32], bits: int, num_codes: int
) -> npt.NDArray[np.uint8]:
    """Unpacks [R, W] words into [R, num_codes] unsigned codes and drops the padding."""
    octets = np.ascontiguousarray(words_RW, dtype="<i4").view(np.uint8)
    if 8 % bits == 0:
        return np.ascontiguousarray(_spread(octets, bits)[:, :num_codes])
    num_rows = octets.shape[0]
    num_runs = -(-num_codes // _CODES)
    padded = np.zeros((num_rows, num_runs * bits), np.uint8)
    num_bytes = min(padded.shape[1], octets.shape[1])
    padded[:, :num_bytes] = octets[:, :num_bytes]
    wide = np.zeros((num_rows, num_runs, _CODES), np.uint8)
    wide[:, :, :bits] = padded.reshape(num_rows, num_runs, bits)
    runs = wide.view("<u8")[:, :, 0]
    codes = np.empty((num_rows, num_runs * _CODES), np.uint8)
    mask = np.uint64((1 << bits) - 1)
    for position in range(_CODES):
        codes[:, position::_CODES] = (runs >> np.uint64(position * bits)) & mask
    return np.ascontiguousarray(codes[:, :num_codes])


def _spread(octets_RB: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """Returns the 8 / bits codes of each byte. Each byte becomes a word with room for them, and
    halves of a group of codes are moved apart until each code has a byte."""
    num_codes = 8 // bits
    spread = octets_RB.astype(f"<u{num_codes}")
    while num_codes > 1:
        num_codes //= 2
        group_bits, room_bits = num_codes * bits, num_codes * 8
        mask = sum(((1 << group_bits) - 1) << shift for shift in range(0, 64, room_bits))
        moved = spread << spread.dtype.type(room_bits - group_bits)
        spread |= moved
        spread &= spread.dtype.type(mask & ((1 << 8 * spread.itemsize) - 1))
    return spread.view(np.uint8)

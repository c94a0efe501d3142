"""GGUF's block formats, one number at a time, as ggml-quants.c has them."""

import struct

import numpy as np

F = np.float32
# What the four-bit codes of IQ4 and, twice as large, of e2m1 stand for.
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
MXFP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def half(block: bytes, start: int) -> np.float32:
    return F(struct.unpack_from("<e", block, start)[0])


def pack_half(value: np.float32) -> bytes:
    return np.float16(value).tobytes()


def nibble(block: bytes, start: int, column: int) -> int:
    byte = block[start + column % 16]
    return byte >> 4 if column >= 16 else byte & 15


def fifth_bit(block: bytes, start: int, column: int) -> int:
    return struct.unpack_from("<I", block, start)[0] >> column & 1


def scale_and_minimum(scales: bytes, group: int) -> tuple[int, int]:
    """get_scale_min_k4."""
    if group < 4:
        return scales[group] & 63, scales[group + 4] & 63
    low, high_s, high_m = scales[group + 4], scales[group - 4] >> 6, scales[group] >> 6
    return low & 15 | high_s << 4, low >> 4 | high_m << 4


def dequantize_block(name: str, block: bytes) -> list[np.float32]:
    columns = range(256 if name.endswith("K") else 32)
    d = half(block, 208 if name == "Q6_K" else 0)
    if name == "Q4_0":
        return [F(nibble(block, 2, i) - 8) * d for i in columns]
    if name == "Q4_1":
        return [F(nibble(block, 4, i)) * d + half(block, 2) for i in columns]
    if name == "Q5_0":
        codes = [nibble(block, 6, i) | fifth_bit(block, 2, i) << 4 for i in columns]
        return [F(code - 16) * d for code in codes]
    if name == "Q5_1":
        codes = [nibble(block, 8, i) | fifth_bit(block, 4, i) << 4 for i in columns]
        return [F(code) * d + half(block, 2) for code in codes]
    if name == "Q8_0":
        return [F(struct.unpack_from("b", block, 2 + i)[0]) * d for i in columns]
    if name == "Q4_K":
        return [_q4_k(block, d, i) for i in columns]
    assert name == "Q6_K"
    return [_q6_k(block, d, i) for i in columns]


def _q4_k(block: bytes, d: np.float32, i: int) -> np.float32:
    group = i // 32
    scale, minimum = scale_and_minimum(block[4:16], group)
    byte = block[16 + 32 * (group // 2) + i % 32]
    code = byte >> 4 if group % 2 else byte & 15
    return d * F(scale) * F(code) - half(block, 2) * F(minimum)


def _q6_k(block: bytes, d: np.float32, i: int) -> np.float32:
    part, run, column = i // 128, i % 128 // 32, i % 32
    byte = block[64 * part + 32 * (run % 2) + column]
    low = byte >> 4 if run >= 2 else byte & 15
    high = block[128 + 32 * part + column] >> (2 * run) & 3
    scale = struct.unpack_from("b", block, 192 + i // 16)[0]
    return d * F(scale) * F((low | high << 4) - 32)


def quantize_q4_0(values: np.ndarray) -> bytes:
    """quantize_row_q4_0_ref on 32 values."""
    largest = max(values, key=abs)  # the first of equals, as there
    d = F(largest) / F(-8)
    inverse = F(1) / d if d else F(0)
    codes = [min(15, int(F(F(value) * inverse + F(8.5)))) for value in values]
    return pack_half(d) + bytes(codes[j] | codes[j + 16] << 4 for j in range(16))


def quantize_q8_0(values: np.ndarray) -> bytes:
    """quantize_row_q8_0_ref on 32 values."""
    d = F(max(map(abs, values))) / F(127)
    inverse = F(1) / d if d else F(0)
    codes = []
    for value in values:
        step = F(value) * inverse
        rounded = int(abs(step) + F(0.5)) if abs(step) % 1 >= 0.5 else int(abs(step))
        codes.append(rounded if step >= 0 else -rounded)
    return pack_half(d) + struct.pack("32b", *codes)


QUANTIZERS = {"Q4_0": quantize_q4_0, "Q8_0": quantize_q8_0}

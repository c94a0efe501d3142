"""Layers in GGUF's blocks in integers, block by block: what every kernel must give bit for bit.

Letters: T tokens, O output rows, S blocks, K the columns of one, G its groups.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from references.gguf import IQ4_VALUES, MXFP4_VALUES, fifth_bit, half, nibble, scale_and_minimum

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

# A block as signed codes, scales and minima of its groups, d and e: d s code - e m.
Parts = tuple[list[int], list[int], list[int], float, float]


def _q2_k(block: bytes) -> Parts:
    codes = [block[16 + 32 * (i // 128) + i % 32] >> 2 * (i % 128 // 32) & 3 for i in range(256)]
    scales, minima = [byte & 15 for byte in block[:16]], [byte >> 4 for byte in block[:16]]
    return codes, scales, minima, float(half(block, 80)), float(half(block, 82))


def _q3_k(block: bytes) -> Parts:
    codes = []
    for i in range(256):
        low = block[32 + 32 * (i // 128) + i % 32] >> 2 * (i % 128 // 32) & 3
        codes.append((low | (block[i % 32] >> i // 32 & 1) << 2) - 4)
    scales = []
    for group in range(16):
        byte = block[96 + group % 8]
        low = byte >> 4 if group >= 8 else byte & 15
        scales.append((low | (block[104 + group % 4] >> 2 * (group // 4) & 3) << 4) - 32)
    return codes, scales, [0] * 16, float(half(block, 108)), 0.0


def _six_bits(block: bytes, start: int) -> tuple[list[int], list[int]]:
    both = [scale_and_minimum(block[start : start + 12], group) for group in range(8)]
    return [scale for scale, _ in both], [minimum for _, minimum in both]


def _low_bits(block: bytes, start: int, i: int) -> int:
    byte = block[start + 32 * (i // 64) + i % 32]
    return byte >> 4 if i // 32 % 2 else byte & 15


def _q4_k(block: bytes) -> Parts:
    codes = [_low_bits(block, 16, i) for i in range(256)]
    return codes, *_six_bits(block, 4), float(half(block, 0)), float(half(block, 2))


def _q5_k(block: bytes) -> Parts:
    codes = [_low_bits(block, 48, i) | (block[16 + i % 32] >> i // 32 & 1) << 4 for i in range(256)]
    return codes, *_six_bits(block, 4), float(half(block, 0)), float(half(block, 2))


def _q6_k(block: bytes) -> Parts:
    codes = []
    for i in range(256):
        part, run, column = i // 128, i % 128 // 32, i % 32
        byte = block[64 * part + 32 * (run % 2) + column]
        low = byte >> 4 if run >= 2 else byte & 15
        codes.append((low | (block[128 + 32 * part + column] >> 2 * run & 3) << 4) - 32)
    scales = [byte - 256 if byte > 127 else byte for byte in block[192:208]]
    return codes, scales, [0] * 16, float(half(block, 208)), 0.0


def _iq4_xs(block: bytes) -> Parts:
    codes, scales = [], []
    high = block[2] | block[3] << 8
    for group in range(8):
        low = block[4 + group // 2] >> 4 * (group % 2) & 15
        scales.append((low | (high >> 2 * group & 3) << 4) - 32)
        codes += [IQ4_VALUES[nibble(block, 8 + 16 * group, i)] for i in range(32)]
    return codes, scales, [0] * 8, float(half(block, 0)), 0.0


def _q4_1(block: bytes) -> Parts:
    codes = [nibble(block, 4, i) for i in range(32)]
    return codes, [1], [1], float(half(block, 0)), -float(half(block, 2))


def _q5_1(block: bytes) -> Parts:
    codes = [nibble(block, 8, i) | fifth_bit(block, 4, i) << 4 for i in range(32)]
    return codes, [1], [1], float(half(block, 0)), -float(half(block, 2))


def _iq4_nl(block: bytes) -> Parts:
    codes = [IQ4_VALUES[nibble(block, 2, i)] for i in range(32)]
    return codes, [1], [0], float(half(block, 0)), 0.0


def _mxfp4(block: bytes) -> Parts:
    codes = [MXFP4_VALUES[nibble(block, 1, i)] for i in range(32)]
    return codes, [1], [0], 2.0 ** (block[0] - 128), 0.0


@dataclass(frozen=True, kw_only=True)
class BlockCase:
    """A kind of blocks: its columns and bytes, where fp16 numbers stand, and its parts."""

    num_columns: int
    num_bytes: int
    halves: tuple[int, ...]
    parts: Callable[[bytes], Parts]


KINDS = {
    "q2_k": BlockCase(num_columns=256, num_bytes=84, halves=(80, 82), parts=_q2_k),
    "q3_k": BlockCase(num_columns=256, num_bytes=110, halves=(108,), parts=_q3_k),
    "q4_k": BlockCase(num_columns=256, num_bytes=144, halves=(0, 2), parts=_q4_k),
    "q5_k": BlockCase(num_columns=256, num_bytes=176, halves=(0, 2), parts=_q5_k),
    "q6_k": BlockCase(num_columns=256, num_bytes=210, halves=(208,), parts=_q6_k),
    "iq4_xs": BlockCase(num_columns=256, num_bytes=136, halves=(0,), parts=_iq4_xs),
    "q4_1": BlockCase(num_columns=32, num_bytes=20, halves=(0, 2), parts=_q4_1),
    "q5_1": BlockCase(num_columns=32, num_bytes=24, halves=(0, 2), parts=_q5_1),
    "iq4_nl": BlockCase(num_columns=32, num_bytes=18, halves=(0,), parts=_iq4_nl),
    "mxfp4": BlockCase(num_columns=32, num_bytes=17, halves=(), parts=_mxfp4),
}


def random_rows(rng: np.random.Generator, kind: str, num_rows: int, num_columns: int) -> Bytes:
    """Any codes, scales and minima, the largest and the smallest among them; fp16 numbers of both
    signs, some of them zero or subnormal."""
    case = KINDS[kind]
    num_blocks = num_columns // case.num_columns
    rows = rng.integers(0, 256, (num_rows, num_blocks, case.num_bytes), np.uint8)
    extreme = rng.random((num_rows, num_blocks))
    rows[extreme < 0.1] = 255
    rows[extreme > 0.9] = 0
    for start in case.halves:
        halves = rng.normal(scale=0.01, size=(num_rows, num_blocks)).astype(np.float16)
        halves[extreme > 0.8] *= np.float16(1e-4)
        rows[:, :, start : start + 2] = halves[..., None].view(np.uint8)
    if not case.halves:
        rows[:, :, 0] = rng.integers(118, 124, (num_rows, num_blocks))
        rows[extreme > 0.9, 0] = rng.integers(0, 2)
    return rows.reshape(num_rows, -1)


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """The numbers of rows: codes [O, S, K], scales and minima [O, S, G], d and e [O, S]."""

    codes: Ints
    scales: Ints
    minima: Ints
    d: Floats
    e: Floats


def unpack(kind: str, rows_OB: Bytes) -> Unpacked:
    case = KINDS[kind]
    blocks = rows_OB.reshape(-1, case.num_bytes)
    parts = [case.parts(block.tobytes()) for block in blocks]
    shape = (len(rows_OB), -1)

    def ints(place: int) -> Ints:
        numbers = np.array([one[place] for one in parts], np.int64)
        return numbers.reshape(*shape, numbers.shape[1])

    return Unpacked(
        codes=ints(0),
        scales=ints(1),
        minima=ints(2),
        d=np.array([one[3] for one in parts], np.float32).reshape(shape),
        e=np.array([one[4] for one in parts], np.float32).reshape(shape),
    )


def quantized_inputs(x_TI: Floats, num_columns: int) -> tuple[Ints, Floats]:
    """Codes [T, S, K] and scales [T, S]: one for each block."""
    grouped = x_TI.reshape(len(x_TI), -1, num_columns)
    limits = np.abs(grouped).max(axis=2)
    inverses = np.divide(np.float32(127), limits, out=np.zeros_like(limits), where=limits > 0)
    codes = np.clip(np.rint(grouped * inverses[..., None]), -128, 127).astype(np.int64)
    return codes, limits / np.float32(127)


def linear(kind: str, rows_OB: Bytes, x_TI: Floats, bias_O: Floats | None = None) -> Floats:
    """[T, O]: integers in each block, then float32 in the order of blocks, every product and sum
    rounded on its own."""
    weight = unpack(kind, rows_OB)
    codes_TSK, scales_TS = quantized_inputs(x_TI, KINDS[kind].num_columns)
    num_groups = weight.scales.shape[2]
    inputs_TSGC = codes_TSK.reshape(*codes_TSK.shape[:2], num_groups, -1)
    codes_OSGC = weight.codes.reshape(*weight.codes.shape[:2], num_groups, -1)
    y_TO = np.zeros((len(x_TI), len(rows_OB)), np.float32)
    for block in range(weight.d.shape[1]):
        products = np.einsum("tgc,ogc->tog", inputs_TSGC[:, block], codes_OSGC[:, block])
        a_TO = (products * weight.scales[:, block]).sum(axis=2)
        b_TO = inputs_TSGC[:, block].sum(axis=2) @ weight.minima[:, block].T
        assert max(np.abs(a_TO).max(), np.abs(b_TO).max()) < 2**31
        minima = weight.e[:, block] * b_TO.astype(np.float32)
        sums = weight.d[:, block] * a_TO.astype(np.float32) - minima
        y_TO += scales_TS[:, block, None] * sums
    return y_TO if bias_O is None else y_TO + bias_O


def values(kind: str, rows_OB: Bytes) -> npt.NDArray[np.float64]:
    """[O, I] without a rounding."""
    weight = unpack(kind, rows_OB)
    codes = weight.codes.reshape(*weight.scales.shape, -1).astype(np.float64)
    d, e = weight.d.astype(np.float64), weight.e.astype(np.float64)
    scaled = codes * (d[..., None] * weight.scales)[..., None]
    return (scaled - (e[..., None] * weight.minima)[..., None]).reshape(len(rows_OB), -1)

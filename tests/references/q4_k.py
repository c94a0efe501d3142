"""Q4_K layers in integers, super-block by super-block: what every kernel must give bit for bit.

Letters: T tokens, O output rows, S super-blocks of 256 columns, G the eight groups of one, C the 32
columns of a group.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from references.gguf import scale_and_minimum

COLUMNS = 256
BLOCK_BYTES = 144
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Q4KWeight:
    """d and m of super-blocks, scales and minima of six bits, codes of four."""

    d_OS: Floats
    m_OS: Floats
    scales_OSG: npt.NDArray[np.int64]
    minima_OSG: npt.NDArray[np.int64]
    codes_OSGC: npt.NDArray[np.int64]


def unpack(rows_OB: Bytes) -> Q4KWeight:
    blocks = rows_OB.reshape(len(rows_OB), -1, BLOCK_BYTES)
    halves = np.ascontiguousarray(blocks[:, :, :4]).view(np.float16).astype(np.float32)
    factors = np.array(
        [
            [[scale_and_minimum(bytes(block[4:16]), group) for group in range(8)] for block in row]
            for row in blocks
        ],
        np.int64,
    )
    pairs = blocks[:, :, 16:].astype(np.int64).reshape(*blocks.shape[:2], 4, 32)
    codes = np.stack([pairs & 15, pairs >> 4], axis=3).reshape(*blocks.shape[:2], 8, 32)
    return Q4KWeight(
        d_OS=halves[:, :, 0],
        m_OS=halves[:, :, 1],
        scales_OSG=factors[..., 0],
        minima_OSG=factors[..., 1],
        codes_OSGC=codes,
    )


def pack(weight: Q4KWeight) -> Bytes:
    """The way back, group by group."""
    num_rows, num_blocks = weight.d_OS.shape
    rows = np.zeros((num_rows, num_blocks, BLOCK_BYTES), np.uint8)
    halves = np.stack([weight.d_OS, weight.m_OS], axis=2).astype(np.float16)
    rows[:, :, :4] = halves.view(np.uint8)
    s, t, codes = weight.scales_OSG, weight.minima_OSG, weight.codes_OSGC
    for group in range(4):
        rows[:, :, 4 + group] = s[..., group] | s[..., 4 + group] >> 4 << 6
        rows[:, :, 8 + group] = t[..., group] | t[..., 4 + group] >> 4 << 6
        rows[:, :, 12 + group] = s[..., 4 + group] & 15 | (t[..., 4 + group] & 15) << 4
        pair = codes[..., 2 * group, :] | codes[..., 2 * group + 1, :] << 4
        rows[:, :, 16 + 32 * group : 48 + 32 * group] = pair
    return rows.reshape(num_rows, -1)


def quantize(values_OI: Floats) -> Bytes:
    """Rounded to nearest on a grid from the least to the largest value of each group, zero among
    them. llama.cpp looks for a better one."""
    groups = values_OI.reshape(len(values_OI), -1, 8, 32)
    low, high = np.minimum(groups.min(axis=3), 0), np.maximum(groups.max(axis=3), 0)
    steps = (high - low) / 15
    d = np.maximum(steps.max(axis=2) / 63, 1e-6).astype(np.float16).astype(np.float32)
    m = np.maximum((-low).max(axis=2) / 63, 1e-6).astype(np.float16).astype(np.float32)
    scales = np.clip(np.rint(steps / d[..., None]), 1, 63).astype(np.int64)
    minima = np.clip(np.rint(-low / m[..., None]), 0, 63).astype(np.int64)
    offsets, sizes = m[..., None] * minima, d[..., None] * scales
    codes = np.clip(np.rint((groups + offsets[..., None]) / sizes[..., None]), 0, 15)
    return pack(
        Q4KWeight(
            d_OS=d,
            m_OS=m,
            scales_OSG=scales,
            minima_OSG=minima,
            codes_OSGC=codes.astype(np.int64),
        )
    )


def random_rows(rng: np.random.Generator, num_rows: int, num_columns: int) -> Bytes:
    """Any codes, scales and minima, the largest and the smallest among them; d and m of both signs,
    some of them zero or subnormal."""
    num_blocks = num_columns // COLUMNS
    rows = rng.integers(0, 256, (num_rows, num_blocks, BLOCK_BYTES), np.uint8)
    extreme = rng.random((num_rows, num_blocks))
    rows[extreme < 0.1, 4:] = 255
    rows[extreme > 0.9, 4:16] = 0
    halves = rng.normal(scale=0.01, size=(num_rows, num_blocks, 2)).astype(np.float16)
    halves[extreme > 0.8] *= np.float16(1e-4)
    rows[:, :, :4] = halves.view(np.uint8)
    return rows.reshape(num_rows, -1)


def quantized_inputs(x_TI: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Codes [T, S, 256] and scales [T, S]: one for each super-block, llama.cpp's Q8_K but for the
    sign of a scale."""
    grouped = x_TI.reshape(len(x_TI), -1, COLUMNS)
    limits = np.abs(grouped).max(axis=2)
    inverses = np.divide(np.float32(127), limits, out=np.zeros_like(limits), where=limits > 0)
    codes = np.clip(np.rint(grouped * inverses[..., None]), -128, 127).astype(np.int64)
    return codes, limits / np.float32(127)


def linear(rows_OB: Bytes, x_TI: Floats, bias_O: Floats | None = None) -> Floats:
    """[T, O]: integers in each super-block, then float32 in the order of super-blocks, every
    product and sum rounded on its own."""
    weight = unpack(rows_OB)
    codes_TSK, scales_TS = quantized_inputs(x_TI)
    inputs_TSGC = codes_TSK.reshape(*codes_TSK.shape[:2], 8, 32)
    products = np.einsum("tsgc,osgc->tosg", inputs_TSGC, weight.codes_OSGC)
    a_TOS = (products * weight.scales_OSG).sum(axis=3)
    b_TOS = np.einsum("tsg,osg->tos", inputs_TSGC.sum(axis=3), weight.minima_OSG)
    assert max(np.abs(a_TOS).max(), np.abs(b_TOS).max()) < 2**31
    y_TO = np.zeros((len(x_TI), len(rows_OB)), np.float32)
    for block in range(a_TOS.shape[2]):
        a, b = a_TOS[:, :, block].astype(np.float32), b_TOS[:, :, block].astype(np.float32)
        sums = weight.d_OS[:, block] * a - weight.m_OS[:, block] * b
        y_TO += scales_TS[:, block, None] * sums
    return y_TO if bias_O is None else y_TO + bias_O

"""Weights with zeros: made, and how many bytes their values take as bitmaps, counted slowly.

Letters: O output rows, I input columns.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from references.linear import LinearCase

ZERO_CODE = 128  # of int8
ROWS, COLUMNS = 16, 32  # of a block


def is_zero(case: LinearCase) -> npt.NDArray[np.bool_]:
    """Which numbers are zeros, of whatever sign."""
    if case.kind == "int8":
        return np.equal(case.values_OI, ZERO_CODE)
    zeros_OI: npt.NDArray[np.bool_] = (case.values_OI.astype(np.uint16) & 0x7FFF) == 0
    return zeros_OI


def with_zeros(case: LinearCase, zeros_OI: npt.NDArray[np.bool_]) -> LinearCase:
    zero = ZERO_CODE if case.kind == "int8" else 0
    return replace(
        case, values_OI=np.where(zeros_OI, zero, case.values_OI).astype(case.values_OI.dtype)
    )


def random_zeros(
    rng: np.random.Generator, shape: tuple[int, int], share: float
) -> npt.NDArray[np.bool_]:
    return rng.random(shape) < share


def two_of_four(rng: np.random.Generator, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Two zeros in any four columns side by side that begin at a multiple of four."""
    order = rng.random((shape[0], shape[1] // 4, 4)).argsort(axis=2)
    return (order < 2).reshape(shape)


def value_bytes(case: LinearCase, *, is_short: bool) -> int:
    """The bytes of the values: a bit for each number of whole blocks, and the numbers that are not
    zero. Short ones take a byte and a half where their block's upper bytes are among the 16 most
    frequent ones of the 16 rows, two bytes elsewhere; a byte of each block says which."""
    num_rows, num_columns = case.values_OI.shape
    padded = (-(-num_rows // ROWS) * ROWS, -(-num_columns // COLUMNS) * COLUMNS)
    is_there = np.zeros(padded, dtype=np.bool_)
    is_there[:num_rows, :num_columns] = ~is_zero(case)
    num_bytes = is_there.size // 8
    if not is_short:
        return num_bytes + int(is_there.sum()) * (1 if case.kind == "int8" else 2)
    values = np.zeros(padded, dtype=np.uint16)
    values[:num_rows, :num_columns] = case.values_OI
    for row in range(0, padded[0], ROWS):
        panel, there = values[row : row + ROWS] >> 8, is_there[row : row + ROWS]
        counts = np.bincount(panel[there], minlength=256)
        frequent = sorted(range(256), key=lambda byte: (-counts[byte], byte))[:16]
        for column in range(0, padded[1], COLUMNS):
            own = there[:, column : column + COLUMNS]
            upper = panel[:, column : column + COLUMNS]
            is_wide = not np.isin(upper[own], frequent).all()
            num_bytes += 1
            for pair in range(0, COLUMNS, 4):
                count = int(own[:, pair : pair + 4].sum())
                num_bytes += 2 * count if is_wide else count + (count + 1) // 2
    return num_bytes


def all_bytes(case: LinearCase, *, is_short: bool) -> int:
    """The bytes of the weight in the core: values and 64 bytes behind them, where each run of 16
    blocks begins, upper bytes, scales and bias, each to a multiple of 64."""
    num_rows, num_columns = case.values_OI.shape
    num_panels, num_blocks = -(-num_rows // ROWS), -(-num_columns // COLUMNS)
    parts = [value_bytes(case, is_short=is_short) + 64, num_panels * -(-num_blocks // 16) * 8]
    if is_short:
        parts.append(num_panels * 16)
    if case.scales_OG is not None:
        parts.append(num_panels * ROWS * case.scales_OG.shape[1] * 2)
    if case.bias_O is not None:
        parts.append(num_panels * ROWS * 4)
    return sum(-(-part // 64) * 64 for part in parts)

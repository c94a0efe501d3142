"""Fits rows of blocks to floats, weighted by how much the error of each column counts.

The weights of squared errors are those of llama.cpp's quantizers. With a column's importance (the
mean square of its input), the weight is that times sqrt(2 m + w^2). Here m is the mean square of
the super-block, or of the row in Q5_0 and Q5_1. Without importance the weight is sqrt(m) + |w|. In
Q6_K, whose steps are small, it is the importance alone, or w^2 without. The result has no more
error than llama.cpp's (docs/guide/gguf.md).

Shapes: O rows, I columns, N blocks of B columns.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from paredown.errors import UnsupportedError
from paredown.formats.floating import check_finite
from paredown.formats.gguf import q5_0, six_bits
from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.fit_minimum import RunShape, RunsWithMinimum, as_half, fit_runs
from paredown.formats.gguf.fit_scaled import ScaledShape, fit_scaled_runs
from paredown.formats.gguf.least_squares_codes import (
    Groups,
    fit_symmetric,
    fit_with_minimum,
    rounded,
)

# Values fitted at once, so that the temporaries stay in a core's own cache.
_CHUNK_VALUES = 1 << 16
_MAX_HALF = float(np.finfo(np.float16).max)
_Q4_K = RunShape(num_runs=8, num_columns=32, top_code=15, top_scale=63)
_Q5_K = RunShape(num_runs=8, num_columns=32, top_code=31, top_scale=63)
_Q6_K = ScaledShape(num_runs=16, num_columns=16, lowest_code=32, lowest_scale=128)

# Makes the bytes [N, bytes] of N blocks from their values, their importance or None, and the mean
# squares of their rows [N, 1].
Fit = Callable[[Floats, Floats | None, Floats], Bytes]


def fitted_rows(
    name: str, values_OI: Floats, importance_I: Floats | None, num_threads: int = 1
) -> Bytes:
    """Returns the rows [O, bytes] in a type of FITTED; any number of threads gives the same
    result. Raises CheckpointError for values that are not finite, UnsupportedError for values
    beyond fp16."""
    check_finite(values_OI)
    num_columns, fit = FITTED[name]
    _check_range(name, values_OI)
    num_rows, width = values_OI.shape
    chunk_rows = max(1, _CHUNK_VALUES // width)

    def chunk(start: int) -> Bytes:
        x_OI = np.ascontiguousarray(values_OI[start : start + chunk_rows], np.float32)
        squares_O = np.square(x_OI).mean(axis=1)
        squares_N1 = np.repeat(squares_O, width // num_columns)[:, None]
        importance_NB = None
        if importance_I is not None:
            spread = np.broadcast_to(importance_I, x_OI.shape)
            importance_NB = np.ascontiguousarray(spread).reshape(-1, num_columns)
        blocks = fit(x_OI.reshape(-1, num_columns), importance_NB, squares_N1)
        return blocks.reshape(len(x_OI), -1)

    starts = range(0, num_rows, chunk_rows)
    if num_threads == 1:
        return np.concatenate([chunk(start) for start in starts])
    with ThreadPoolExecutor(num_threads) as pool:
        return np.concatenate(list(pool.map(chunk, starts)))


def _check_range(name: str, values_OI: Floats) -> None:
    largest = float(np.abs(values_OI).max(initial=0))
    if largest > _MAX_HALF:
        raise UnsupportedError(
            f"{name} cannot hold weights this large: its scales are fp16",
            seen=f"a weight of {largest:.4g}, at most {_MAX_HALF}",
            remedy="Write the file in bf16.",
        )


def _weights(x_NB: Floats, importance_NB: Floats | None, squares_N1: Floats) -> Floats:
    if importance_NB is None:
        return np.sqrt(squares_N1) + np.abs(x_NB)
    weights = importance_NB * np.sqrt(2 * squares_N1 + np.square(x_NB))
    return weights.astype(np.float32, copy=False)


def _fit_k(x_NB: Floats, importance_NB: Floats | None, shape: RunShape) -> RunsWithMinimum:
    squares_N1 = np.square(x_NB).mean(axis=1, keepdims=True)
    return fit_runs(x_NB, _weights(x_NB, importance_NB, squares_N1), shape)


def _head(found: RunsWithMinimum) -> list[Bytes]:
    return [_halves(found.d_N), _halves(found.m_N), six_bits.pack(found.s_NR, found.t_NR)]


def _q4_k(x_NB: Floats, importance_NB: Floats | None, squares_N1: Floats) -> Bytes:
    found = _fit_k(x_NB, importance_NB, _Q4_K)
    return np.concatenate([*_head(found), _pairs_of_runs(found.codes_NRC)], axis=1)


def _q5_k(x_NB: Floats, importance_NB: Floats | None, squares_N1: Floats) -> Bytes:
    found = _fit_k(x_NB, importance_NB, _Q5_K)
    fifth_NCR = (found.codes_NRC >> 4).swapaxes(1, 2)
    fifth = np.packbits(fifth_NCR, axis=2, bitorder="little")[:, :, 0]
    return np.concatenate(
        [*_head(found), fifth, _pairs_of_runs(found.codes_NRC & np.uint8(15))], axis=1
    )


def _pairs_of_runs(codes_NRC: Bytes) -> Bytes:
    pairs = codes_NRC[:, 0::2] | codes_NRC[:, 1::2] << np.uint8(4)
    return pairs.reshape(len(codes_NRC), -1)


def _q6_k(x_NB: Floats, importance_NB: Floats | None, squares_N1: Floats) -> Bytes:
    """Fits Q6_K, in which each half of 128 columns lies in four runs of 32 (q6_k.py)."""
    weights = np.square(x_NB) if importance_NB is None else importance_NB
    found = fit_scaled_runs(x_NB, weights, _Q6_K)
    codes = (found.codes_NRC.astype(np.int16) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (codes[:, :, :2] & 15) | (codes[:, :, 2:] & 15) << np.uint8(4)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
    high = np.bitwise_or.reduce(codes >> np.uint8(4) << shifts, axis=2)
    parts = (low, high, np.ascontiguousarray(found.s_NR).view(np.uint8), _halves(found.d_N))
    return np.concatenate([one.reshape(len(x_NB), -1) for one in parts], axis=1)


def _q5_0(x_NB: Floats, importance_NB: Floats | None, squares_N1: Floats) -> Bytes:
    groups = _groups(x_NB, importance_NB, squares_N1)
    d_N = as_half(fit_symmetric(groups, -16, 15))
    codes_CN = rounded(groups.x_CN, d_N, 0.0, -16, 15) + np.float32(16)
    return np.concatenate([_halves(d_N), _fifths_and_nibbles(codes_CN)], axis=1)


def _q5_1(x_NB: Floats, importance_NB: Floats | None, squares_N1: Floats) -> Bytes:
    groups = _groups(x_NB, importance_NB, squares_N1)
    d_N, m_N = map(as_half, fit_with_minimum(groups, 31))
    codes_CN = rounded(groups.x_CN, d_N, m_N, 0, 31)
    return np.concatenate([_halves(d_N), _halves(m_N), _fifths_and_nibbles(codes_CN)], axis=1)


def _groups(x_NB: Floats, importance_NB: Floats | None, squares_N1: Floats) -> Groups:
    weights_NB = _weights(x_NB, importance_NB, squares_N1)
    return Groups.of(np.ascontiguousarray(x_NB.T), np.ascontiguousarray(weights_NB.T))


def _fifths_and_nibbles(codes_CN: Floats) -> Bytes:
    return q5_0.pack(np.ascontiguousarray(codes_CN.T).astype(np.uint8))


def _halves(values_N: Floats) -> Bytes:
    return values_N.astype("<f2")[:, None].view(np.uint8)


# The columns of a block and its fit, by the name of the type.
FITTED: dict[str, tuple[int, Fit]] = {
    "Q4_K": (256, _q4_k),
    "Q5_K": (256, _q5_k),
    "Q6_K": (256, _q6_k),
    "Q5_0": (32, _q5_0),
    "Q5_1": (32, _q5_1),
}

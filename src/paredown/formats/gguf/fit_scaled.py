"""Fits Q6_K and Q3_K to floats. Scales are signed integers times a super-block's d. The turns are
those of fit_minimum.py, without minima.

Shapes: N super-blocks, R runs in one, C columns in a run.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.formats.gguf.block_format import Floats
from paredown.formats.gguf.fit_minimum import as_half
from paredown.formats.gguf.least_squares_codes import Groups, fit_symmetric, inverse, rounded

_SPREADS = np.linspace(-3, 3, 13, dtype=np.float32)
_NUM_TURNS = 3


@dataclass(frozen=True, kw_only=True)
class ScaledRuns:
    """The signed codes [N, R, C] and s [N, R], and d [N] as fp16: w = q (d s)."""

    codes_NRC: npt.NDArray[np.int8]
    s_NR: npt.NDArray[np.int8]
    d_N: Floats


@dataclass(frozen=True, kw_only=True)
class ScaledShape:
    """The shape of a super-block: its runs, the columns of a run, and how far codes and s reach
    below zero. Above zero they reach one less."""

    num_runs: int
    num_columns: int
    lowest_code: int
    lowest_scale: int


def fit_scaled_runs(x_NB: Floats, w_NB: Floats, shape: ScaledShape) -> ScaledRuns:
    """Fits super-blocks [N, columns], with weights for their squared errors."""
    return _Fit(x_NB, w_NB, shape).run()


class _Fit:
    """The values of runs have the shape [R, N]; columns, where there are any, come first."""

    def __init__(self, x_NB: Floats, w_NB: Floats, shape: ScaledShape) -> None:
        self._shape = shape
        self._size = (shape.num_runs, len(x_NB))
        self._reach = (-shape.lowest_code, shape.lowest_code - 1)
        self._groups = Groups.of(self._columns_first(x_NB), self._columns_first(w_NB))

    def run(self) -> ScaledRuns:
        scale = fit_symmetric(self._groups, *self._reach)
        self._sum(rounded(self._groups.x_CN, scale, 0.0, *self._reach))
        d, s = self._best_unit(scale.reshape(self._size))
        best = np.full(self._size[1], np.inf, np.float32)
        kept: tuple[Floats, Floats, Floats] | None = None
        for turn in range(_NUM_TURNS):
            if turn:
                d = self._refit(d, s)
                s, _ = self._s_of(d)
            flat = (d * s).reshape(-1)
            codes = rounded(self._groups.x_CN, flat, 0.0, *self._reach)
            self._sum(codes)
            error = self._groups.error(codes, flat, 0.0)
            total = error.reshape(self._size).sum(axis=0)
            better = total < best
            best = np.where(better, total, best)
            everywhere = np.tile(better, self._shape.num_runs)
            if kept is None:
                kept = (codes, s, d)
            kept = (
                np.where(everywhere, codes, kept[0]),
                np.where(better, s, kept[1]),
                np.where(better, d, kept[2]),
            )
        assert kept is not None
        return self._result(*kept)

    def _columns_first(self, values_NB: Floats) -> Floats:
        runs = values_NB.reshape(len(values_NB), self._shape.num_runs, self._shape.num_columns)
        return np.ascontiguousarray(runs.transpose(2, 1, 0)).reshape(self._shape.num_columns, -1)

    def _sum(self, codes_CN: Floats) -> None:
        _, double, cross = self._groups.sums(codes_CN)
        self._double, self._cross = double.reshape(self._size), cross.reshape(self._size)

    def _best_unit(self, wanted_RN: Floats) -> tuple[Floats, Floats]:
        """Returns the d [N] whose integers make the least error, and these integers. The largest
        scale is put near the lowest integer."""
        place = np.abs(wanted_RN).argmax(axis=0)[None]
        largest = np.take_along_axis(wanted_RN, place, axis=0)[0]
        best = np.full(largest.shape, np.inf, np.float32)
        unit, whole = np.zeros_like(largest), np.zeros_like(wanted_RN)
        for spread in _SPREADS:
            tried = as_half(largest / (spread - self._shape.lowest_scale))
            found, error = self._s_of(tried)
            better = error < best
            best = np.where(better, error, best)
            unit, whole = np.where(better, tried, unit), np.where(better, found, whole)
        return unit, whole

    def _s_of(self, d_N: Floats) -> tuple[Floats, Floats]:
        """Returns the best s for these codes, and the error of all runs without the part that no
        choice changes."""
        lowest = self._shape.lowest_scale
        s = self._cross * inverse(d_N * self._double)
        s = np.clip(np.rint(s, out=s), -lowest, lowest - 1)
        scale = d_N * s
        return s, (scale * (scale * self._double - 2 * self._cross)).sum(axis=0)

    def _refit(self, d_N: Floats, s_RN: Floats) -> Floats:
        double = (s_RN * s_RN * self._double).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            d = as_half((s_RN * self._cross).sum(axis=0) / double)
        return np.where(np.isfinite(d) & (d != 0), d, d_N)

    def _result(self, codes: Floats, s_RN: Floats, d_N: Floats) -> ScaledRuns:
        by_run = codes.reshape(self._shape.num_columns, *self._size)
        return ScaledRuns(
            codes_NRC=by_run.transpose(2, 1, 0).astype(np.int8),
            s_NR=s_RN.T.astype(np.int8),
            d_N=d_N,
        )

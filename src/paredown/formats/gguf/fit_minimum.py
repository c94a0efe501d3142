"""Fits Q4_K, Q5_K and Q2_K to floats. Scales and minima are integers times a super-block's d and
m, and all four are chosen by the weighted squared error.

llama.cpp searches each group's scale and then rounds it. Here integers, d and m, and codes are
fitted to each other in turns, and the best of all turns is kept.

Shapes: N super-blocks, R runs in one, C columns in a run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from paredown.formats.gguf.block_format import Bytes, Floats
from paredown.formats.gguf.least_squares_codes import (
    Groups,
    fit_with_minimum,
    inverse,
    rounded,
)

_SPREADS = np.linspace(-3, 3, 13, dtype=np.float32)
_NUM_TURNS = 3


@dataclass(frozen=True, kw_only=True)
class RunsWithMinimum:
    """The codes [N, R, C], s and t [N, R], and d and m [N] as fp16: w = q (d s) - m t."""

    codes_NRC: Bytes
    s_NR: Bytes
    t_NR: Bytes
    d_N: Floats
    m_N: Floats


@dataclass(frozen=True, kw_only=True)
class RunShape:
    """The shape of a super-block: its runs, the columns of a run, and the largest code, s and t."""

    num_runs: int
    num_columns: int
    top_code: int
    top_scale: int


def fit_runs(x_NB: Floats, w_NB: Floats, shape: RunShape) -> RunsWithMinimum:
    """Fits super-blocks [N, columns], with weights for their squared errors."""
    return _Fit(x_NB, w_NB, shape).run()


class _Fit:
    """The values of runs have the shape [R, N]; columns, where there are any, come first."""

    def __init__(self, x_NB: Floats, w_NB: Floats, shape: RunShape) -> None:
        self._shape = shape
        self._size = (shape.num_runs, len(x_NB))
        self._groups = Groups.of(self._columns_first(x_NB), self._columns_first(w_NB))
        self._total = self._groups.total_N.reshape(self._size)
        self._first = self._groups.first_N.reshape(self._size)

    def run(self) -> RunsWithMinimum:
        scale, shift = fit_with_minimum(self._groups, self._shape.top_code)
        codes = rounded(self._groups.x_CN, scale, shift, 0, self._shape.top_code)
        self._sum(codes)
        low_RN = -shift.reshape(self._size)
        d, s = self._best_unit(scale.reshape(self._size), lambda unit: self._s_of(unit, low_RN))
        m, t = self._best_unit(low_RN, lambda unit: self._t_of(unit, d * s))
        best = np.full(self._size[1], np.inf, np.float32)
        kept: Sequence[Floats] = (codes, s, t, d, m)
        for turn in range(_NUM_TURNS):
            if turn:
                d, m = self._refit(d, m, s, t)
                s, _ = self._s_of(d, m * t)
                t, _ = self._t_of(m, d * s)
            line = (d * s).reshape(-1), -(m * t).reshape(-1)
            codes = rounded(self._groups.x_CN, *line, 0, self._shape.top_code)
            self._sum(codes)
            error = self._groups.error(codes, *line).reshape(self._size).sum(axis=0)
            better = error < best
            best = np.where(better, error, best)
            everywhere = np.tile(better, self._shape.num_runs)
            masks = (everywhere, better, better, better, better)
            found = (codes, s, t, d, m)
            kept = [np.where(*one) for one in zip(masks, found, kept, strict=True)]
        return self._result(*kept)

    def _columns_first(self, values_NB: Floats) -> Floats:
        runs = values_NB.reshape(len(values_NB), self._shape.num_runs, self._shape.num_columns)
        return np.ascontiguousarray(runs.transpose(2, 1, 0)).reshape(self._shape.num_columns, -1)

    def _sum(self, codes_CN: Floats) -> None:
        sums = [one.reshape(self._size) for one in self._groups.sums(codes_CN)]
        self._single, self._double, self._cross = sums

    def _best_unit(
        self, wanted_RN: Floats, whole_of: Callable[[Floats], tuple[Floats, Floats]]
    ) -> tuple[Floats, Floats]:
        """Returns the unit [N] whose integers make the least error, and these integers."""
        largest = wanted_RN.max(axis=0)
        best = np.full(largest.shape, np.inf, np.float32)
        unit, whole = np.zeros_like(largest), np.zeros_like(wanted_RN)
        for spread in _SPREADS:
            tried = as_half(largest / (self._shape.top_scale + spread))
            found, error = whole_of(tried)
            better = error < best
            best = np.where(better, error, best)
            unit, whole = np.where(better, tried, unit), np.where(better, found, whole)
        return unit, whole

    def _s_of(self, d_N: Floats, low_RN: Floats) -> tuple[Floats, Floats]:
        """Returns the best s for these codes where the minima are `low_RN`, and the error of all
        runs."""
        wanted = self._cross + low_RN * self._single
        s = wanted * inverse(d_N * self._double)
        s = np.clip(np.rint(s, out=s), 0, self._shape.top_scale)
        return s, self._error(d_N * s, low_RN)

    def _t_of(self, m_N: Floats, scale_RN: Floats) -> tuple[Floats, Floats]:
        t = (scale_RN * self._single - self._first) * inverse(m_N * self._total)
        t = np.clip(np.rint(t, out=t), 0, self._shape.top_scale)
        return t, self._error(scale_RN, m_N * t)

    def _error(self, scale_RN: Floats, low_RN: Floats) -> Floats:
        """Returns the error [N] without the sum of w x x, which no choice changes."""
        error: Floats = scale_RN * (
            scale_RN * self._double - 2 * (low_RN * self._single + self._cross)
        )
        error += low_RN * (low_RN * self._total + 2 * self._first)
        total: Floats = error.sum(axis=0)
        return total

    def _refit(self, d_N: Floats, m_N: Floats, s_RN: Floats, t_RN: Floats) -> tuple[Floats, Floats]:
        """Fits d and m by least squares; keeps them where there is no valid pair."""
        dd = (s_RN * s_RN * self._double).sum(axis=0)
        mm = (t_RN * t_RN * self._total).sum(axis=0)
        dm = (s_RN * t_RN * self._single).sum(axis=0)
        dx, mx = (s_RN * self._cross).sum(axis=0), -(t_RN * self._first).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            determinant = dd * mm - dm * dm
            d = as_half((dx * mm + mx * dm) / determinant)
            m = as_half((mx * dd + dx * dm) / determinant)
        fits = (determinant > 0) & (d > 0) & (m >= 0) & np.isfinite(d) & np.isfinite(m)
        return np.where(fits, d, d_N), np.where(fits, m, m_N)

    def _result(
        self, codes: Floats, s_RN: Floats, t_RN: Floats, d_N: Floats, m_N: Floats
    ) -> RunsWithMinimum:
        by_run = codes.reshape(self._shape.num_columns, *self._size)
        return RunsWithMinimum(
            codes_NRC=by_run.transpose(2, 1, 0).astype(np.uint8),
            s_NR=s_RN.T.astype(np.uint8),
            t_NR=t_RN.T.astype(np.uint8),
            d_N=d_N,
            m_N=m_N,
        )


def as_half(values: Floats) -> Floats:
    """Rounds to the nearest fp16 numbers."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)

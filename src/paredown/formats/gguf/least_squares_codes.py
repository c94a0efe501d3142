"""Finds codes of groups of columns, and fits their scales and minima by weighted least squares.

Shapes: C columns of a group, N groups. Columns come first, so that sums over them are sums of
rows.
"""

from dataclasses import dataclass

import numpy as np

from paredown.formats.gguf.block_format import Floats

# The shifts of the largest code from its place, tried in turn.
_SHIFTS = np.linspace(-0.95, 0.95, 20, dtype=np.float32)
_NUM_REFITS = 2
# A determinant below this share of its first term is zero but for rounding errors.
_SINGULAR = np.float32(1e-6)


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The values x and the weights w of their squared errors; `total` and `first` are the sums of
    w and w x."""

    x_CN: Floats
    w_CN: Floats
    wx_CN: Floats
    total_N: Floats
    first_N: Floats

    @classmethod
    def of(cls, x_CN: Floats, w_CN: Floats) -> "Groups":
        """Builds the groups of these values and weights."""
        wx_CN = w_CN * x_CN
        return cls(
            x_CN=x_CN,
            w_CN=w_CN,
            wx_CN=wx_CN,
            total_N=w_CN.sum(axis=0),
            first_N=wx_CN.sum(axis=0),
        )

    def sums(self, codes_CN: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns the sums of w q, w q q and w x q."""
        scratch = self.w_CN * codes_CN
        single = scratch.sum(axis=0)
        scratch *= codes_CN
        double = scratch.sum(axis=0)
        np.multiply(self.wx_CN, codes_CN, out=scratch)
        return single, double, scratch.sum(axis=0)

    def error(self, codes_CN: Floats, scale_N: Floats, shift_N: Floats | float) -> Floats:
        """Returns the weighted squared error of scale q + shift."""
        off = codes_CN * scale_N
        off += shift_N
        off -= self.x_CN
        off *= off
        off *= self.w_CN
        summed: Floats = off.sum(axis=0)
        return summed


def rounded(x_CN: Floats, scale_N: Floats, shift_N: Floats | float, low: int, top: int) -> Floats:
    """Returns the nearest codes for scale q + shift; 0 where the scale is 0."""
    codes = x_CN - shift_N
    codes *= inverse(scale_N)
    np.rint(codes, out=codes)
    return np.clip(codes, low, top, out=codes)


def inverse(values: Floats) -> Floats:
    """Returns 1 / values, or 0 where that is not finite."""
    with np.errstate(divide="ignore", over="ignore"):
        found = np.float32(1) / values
    return np.where(np.isfinite(found), found, np.float32(0)).astype(np.float32)


def fit_with_minimum(groups: Groups, top: int) -> tuple[Floats, Floats]:
    """Returns scales and shifts [N] for codes from 0 to `top`, with shifts at most 0. Several
    spacings of the codes are tried, each fitted to the codes that it gives. The best one by its
    own error is refitted."""
    least_N = np.minimum(groups.x_CN.min(axis=0), np.float32(0))
    span_N = groups.x_CN.max(axis=0) - least_N
    best = np.full(span_N.shape, np.inf, np.float32)
    scale_N, shift_N = np.zeros_like(span_N), least_N
    for number in range(len(_SHIFTS) + _NUM_REFITS):
        if number < len(_SHIFTS):
            start, low = span_N / (top + _SHIFTS[number]), least_N
        else:
            start, low = scale_N, shift_N
        codes = rounded(groups.x_CN, start, low, 0, top)
        new_scale, new_shift, gained = _line(groups, codes)
        better = -gained < best
        best = np.where(better, -gained, best)
        scale_N = np.where(better, new_scale, scale_N)
        shift_N = np.where(better, new_shift, shift_N)
    return scale_N, shift_N


def _line(groups: Groups, codes_CN: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns the best scale and shift of these codes, and the decrease of the squared error.
    Where the slope or shift has the wrong sign, or the system is singular, only one of the two is
    fitted."""
    single, double, cross = groups.sums(codes_CN)
    total, first = groups.total_N, groups.first_N
    determinant = total * double - single * single
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = (total * cross - first * single) / determinant
        shift = (double * first - single * cross) / determinant
    is_line = (determinant > _SINGULAR * total * double) & (scale >= 0) & (shift <= 0)
    is_line &= np.isfinite(scale) & np.isfinite(shift)
    only_scale = np.maximum(cross * inverse(double), np.float32(0))
    only_shift = np.minimum(first * inverse(total), np.float32(0))
    takes_scale = only_scale * cross >= only_shift * first
    alone = (np.where(takes_scale, only_scale, 0), np.where(takes_scale, 0, only_shift))
    fitted: Floats = np.where(is_line, scale, alone[0]).astype(np.float32)
    moved: Floats = np.where(is_line, shift, alone[1]).astype(np.float32)
    gained: Floats = 2 * (fitted * cross + moved * first)
    gained -= fitted * fitted * double + moved * moved * total + 2 * fitted * moved * single
    return fitted, moved, gained


def fit_symmetric(groups: Groups, low: int, top: int) -> Floats:
    """Returns scales [N] of either sign for codes from `low` to `top`, -low > top. The value of
    largest magnitude is put near `low`, and the scale is fitted to the resulting codes."""
    place = np.abs(groups.x_CN).argmax(axis=0)[None]
    largest_N = np.take_along_axis(groups.x_CN, place, axis=0)[0]
    best = np.full(largest_N.shape, -1, np.float32)
    scale_N: Floats = np.zeros_like(largest_N)
    for number in range(len(_SHIFTS) + _NUM_REFITS):
        start = largest_N / (low + _SHIFTS[number]) if number < len(_SHIFTS) else scale_N
        codes = rounded(groups.x_CN, start, 0.0, low, top)
        _, double, cross = groups.sums(codes)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = cross / double
            gained = found * cross
        better = gained > best
        best = np.where(better, gained, best)
        scale_N = np.where(better, found, scale_N)
    return scale_N

"""GPTQ one column at a time in float64, with the inverse of the Hessian written out: optimal brain
quantization (arXiv 2208.11580, equation 2) in an order that is given. No blocks, no factors."""

import numpy as np
import torch

from paredown.compress.quantize.gptq import GPTQ
from paredown.spec.weight import ScaleDType, WeightSpec
from references.integer import quantize_group, round_scale

# Every finite e4m3 number, in order; neighbours alternate between even and odd last bits.
E4M3 = sorted(
    {
        value
        for value in torch.arange(256, dtype=torch.uint8)
        .view(torch.float8_e4m3fn)
        .double()
        .tolist()
        if value == value
    }
)
_BITS = {value: index for index, value in enumerate(value for value in E4M3 if value >= 0)}


def column_order(diagonal: np.ndarray, group_size: int, method: GPTQ) -> list[int]:
    """Largest first; of equals the last first."""
    columns = list(range(len(diagonal)))
    if not method.act_order:
        return columns
    if method.static_groups:
        return sorted(columns, key=lambda c: (-diagonal[c], -c))

    def largest(column: int) -> float:
        start = column // group_size * group_size
        return max(diagonal[start : start + group_size])

    return sorted(columns, key=lambda c: (-largest(c), -(c // group_size), -diagonal[c], -c))


def fit(values: np.ndarray, spec: WeightSpec, dtype: ScaleDType) -> tuple[float, int]:
    """The scale and the signed zero point of one group of a row."""
    if spec.dtype == "fp8":
        return round_scale(max(abs(float(value)) for value in values) / 448, dtype), 0
    _, scale, zero = quantize_group([float(value) for value in values], spec, dtype)
    return scale, zero - 2 ** (spec.bits - 1)


def nearest(value: float, scale: float, zero: int, spec: WeightSpec) -> float:
    """The code, a signed whole number or an e4m3 number."""
    if spec.dtype == "fp8":
        wanted = value / scale
        return min(E4M3, key=lambda code: (abs(code - wanted), _BITS[abs(code)] % 2))
    half = 2 ** (spec.bits - 1)
    return round(min(max(value / scale + zero, -half), half - 1))


def eliminate(
    weight_OI: np.ndarray, inverse_II: np.ndarray, column: int, values_O: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sets a column to `values_O`: the other columns' best answer, and the inverse of the Hessian
    without that column (whose row and column are 0 from now on)."""
    error_O = (weight_OI[:, column] - values_O) / inverse_II[column, column]
    weight_OI = weight_OI - np.outer(error_O, inverse_II[column])
    inverse_II = (
        inverse_II
        - np.outer(inverse_II[:, column], inverse_II[column]) / inverse_II[column, column]
    )
    weight_OI[:, column] = values_O
    inverse_II[column] = inverse_II[:, column] = 0
    return weight_OI, inverse_II


def damped(hessian_II: np.ndarray, damp: float) -> np.ndarray:
    """Columns without inputs stand alone, with the mean of the others on the diagonal."""
    diagonal_I = np.diag(hessian_II).copy()
    mean = diagonal_I[diagonal_I != 0].mean()
    return hessian_II + np.diag((diagonal_I == 0) * mean + damp * mean)


def gptq_reference(
    weight_OI: np.ndarray,
    hessian_II: np.ndarray,
    spec: WeightSpec,
    dtype: ScaleDType,
    method: GPTQ,
    mask_OI: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Signed codes [O, I], scales [O, G] and signed zero points [O, G]. Where `mask_OI` is false
    the code is the zero point, and the grids are fitted to zeros."""
    num_rows, num_columns = weight_OI.shape
    size = spec.group_size or num_columns
    weight_OI = weight_OI.copy()
    weight_OI[:, np.diag(hessian_II) == 0] = 0
    codes_OI = np.zeros_like(weight_OI)
    scales_OG = np.zeros((num_rows, num_columns // size))
    zeros_OG = np.zeros_like(scales_OG)
    static = method.static_groups or size == num_columns
    mask_OI = np.ones(weight_OI.shape, bool) if mask_OI is None else mask_OI

    def fit_group(group: int) -> None:
        for row in range(num_rows):
            columns = slice(group * size, (group + 1) * size)
            values = weight_OI[row, columns] * mask_OI[row, columns]
            scales_OG[row, group], zeros_OG[row, group] = fit(values, spec, dtype)

    for group in range(num_columns // size if static else 0):
        fit_group(group)
    inverse_II = np.linalg.inv(damped(hessian_II, method.damp))
    order = column_order(np.diag(hessian_II), size, method)
    for turn, column in enumerate(order):
        group = column // size
        if not static and turn % size == 0:
            fit_group(group)
        for row in range(num_rows):
            codes_OI[row, column] = nearest(
                weight_OI[row, column], scales_OG[row, group], zeros_OG[row, group], spec
            )
            if not mask_OI[row, column]:
                codes_OI[row, column] = zeros_OG[row, group]
        values_O = (codes_OI[:, column] - zeros_OG[:, group]) * scales_OG[:, group]
        weight_OI, inverse_II = eliminate(weight_OI, inverse_II, column, values_O)
    return codes_OI, scales_OG, zeros_OG

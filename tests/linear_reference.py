"""What a native linear layer computes, slowly and in float64. Shared with the benchmarks.

Letters: T tokens, O output rows, I input columns, G groups of columns.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

INTEGER_BITS = {"int8": 8, "int4": 4}


@dataclass(frozen=True, kw_only=True)
class LinearCase:
    """The arrays `_core.Linear` packs."""

    kind: str
    values_OI: Array
    group_size: int
    scales_OG: npt.NDArray[np.float32] | None = None
    zero_points_OG: npt.NDArray[np.uint8] | None = None
    bias_O: npt.NDArray[np.float32] | None = None


def random_case(
    rng: np.random.Generator,
    kind: str,
    shape: tuple[int, int],
    *,
    group_size: int | None = None,
    symmetric: bool = True,
    bf16_scales: bool = True,
) -> LinearCase:
    rows, columns = shape
    bias = rng.normal(size=rows).astype(np.float32)
    plain = rng.normal(size=shape).astype(np.float32)
    if kind == "fp32":
        return LinearCase(kind=kind, values_OI=plain, group_size=columns, bias_O=bias)
    if kind == "fp16":
        values = plain.astype(np.float16)
        return LinearCase(kind=kind, values_OI=values, group_size=columns, bias_O=bias)
    if kind == "bf16":
        bits = (plain.view(np.uint32) >> 16).astype(np.uint16)
        return LinearCase(kind=kind, values_OI=bits, group_size=columns, bias_O=bias)
    top = 1 << INTEGER_BITS[kind]
    group = columns if group_size is None else group_size
    groups = (rows, columns // group)
    scales = rng.uniform(0.01, 0.1, size=groups).astype(np.float32)
    if bf16_scales:
        scales = (scales.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return LinearCase(
        kind=kind,
        values_OI=rng.integers(0, top, size=shape, dtype=np.uint8),
        group_size=group,
        scales_OG=scales,
        zero_points_OG=None if symmetric else rng.integers(0, top, size=groups, dtype=np.uint8),
        bias_O=bias,
    )


def dequantized(case: LinearCase) -> npt.NDArray[np.float64]:
    if case.kind == "bf16":
        return (case.values_OI.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if case.scales_OG is None:
        return case.values_OI.astype(np.float64)
    zero = np.full_like(case.scales_OG, 1 << (INTEGER_BITS[case.kind] - 1))
    if case.zero_points_OG is not None:
        zero = case.zero_points_OG.astype(np.float32)
    repeat = case.values_OI.shape[1] // case.scales_OG.shape[1]
    scales = np.repeat(case.scales_OG, repeat, axis=1).astype(np.float64)
    codes = case.values_OI.astype(np.float64)
    return (codes - np.repeat(zero, repeat, axis=1).astype(np.float64)) * scales


def activation_group(case: LinearCase) -> int:
    """Columns that share an activation scale (csrc/packed_linear.cpp)."""
    columns = case.values_OI.shape[1]
    if case.group_size < columns:
        return case.group_size
    padded = -(-columns // 32) * 32
    return next(group for group in (128, 64, 32) if padded % group == 0)


def quantized_input(x_TI: npt.NDArray[np.float32], group: int) -> npt.NDArray[np.float64]:
    """Symmetric int8 per row and group, then back: what the integer kernels see of the input."""
    tokens, columns = x_TI.shape
    padded = np.zeros((tokens, -(-columns // group) * group), dtype=np.float32)
    padded[:, :columns] = x_TI
    grouped = padded.reshape(tokens, -1, group)
    limit = np.abs(grouped).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), limit, out=np.zeros_like(limit), where=limit > 0)
    codes = np.rint(grouped * inverse)
    scales = (limit / np.float32(127)).astype(np.float64)
    values: npt.NDArray[np.float64] = (codes * scales).reshape(tokens, -1)[:, :columns]
    return values


def linear_reference(case: LinearCase, x_TI: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    x = x_TI.astype(np.float64)
    if case.kind in INTEGER_BITS:
        x = quantized_input(x_TI, activation_group(case))
    y: npt.NDArray[np.float64] = x @ dequantized(case).T
    if case.bias_O is not None:
        y += case.bias_O
    return y

"""What a native linear layer computes, slowly and in float64. Shared with the benchmarks.

Letters: T tokens, O output rows, I input columns, G groups of columns.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float32]

INTEGER_BITS = {"int8": 8, "int6": 6, "int5": 5, "int4": 4, "int3": 3, "int2": 2}
DEFAULT_ACTIVATIONS = {
    "fp32": "fp32",
    "fp16": "fp32",
    "bf16": "bf16",
    "fp8": "bf16",
    **dict.fromkeys(INTEGER_BITS, "int8_group"),
}


@dataclass(frozen=True, kw_only=True)
class LinearCase:
    """The arrays `_core.Linear` packs, and how it reads its input. An fp8 weight has one unsigned
    byte per value, e4m3 as in OCP's 8-bit formats (no infinities, NaN is 0x7f and 0xff). With steps
    the scale of a group is its row's, scales_OG [O, 1], times its step."""

    kind: str
    values_OI: Array
    group_size: int
    scales_OG: Floats | None = None
    zero_points_OG: npt.NDArray[np.uint8] | None = None
    steps_OG: npt.NDArray[np.uint8] | None = None
    bias_O: Floats | None = None
    activations: str
    input_scale: float | None = None


def random_case(
    rng: np.random.Generator,
    kind: str,
    shape: tuple[int, int],
    *,
    group_size: int | None = None,
    symmetric: bool = True,
    bf16_scales: bool = True,
    activations: str | None = None,
) -> LinearCase:
    """`activations` None is the kind's default; for int8_static a scale is chosen that lets inputs
    of a standard normal distribution saturate now and then."""
    rows, columns = shape
    group = columns if group_size is None or kind in ("fp32", "fp16", "bf16") else group_size
    groups = (rows, columns // group)
    activations = activations or DEFAULT_ACTIVATIONS[kind]
    plain = rng.normal(size=shape).astype(np.float32)
    bias = rng.normal(size=rows).astype(np.float32)
    scales = rng.uniform(0.01, 0.1, size=groups).astype(np.float32)
    zeros = None
    if bf16_scales:
        scales = (scales.view(np.uint32) & 0xFFFF0000).view(np.float32)
    if kind == "fp8":
        signs = rng.integers(0, 2, size=shape, dtype=np.uint8) * np.uint8(0x80)
        values: Array = rng.integers(0, 0x7F, size=shape, dtype=np.uint8) | signs
    elif kind in INTEGER_BITS:
        top = 1 << INTEGER_BITS[kind]
        values = rng.integers(0, top, size=shape, dtype=np.uint8)
        zeros = None if symmetric else rng.integers(0, top, size=groups, dtype=np.uint8)
    elif kind == "bf16":
        values = (plain.view(np.uint32) >> 16).astype(np.uint16)
    else:
        values = plain.astype(np.float16 if kind == "fp16" else np.float32)
    return LinearCase(
        kind=kind,
        values_OI=values,
        group_size=group,
        scales_OG=scales if kind == "fp8" or kind in INTEGER_BITS else None,
        zero_points_OG=zeros,
        bias_O=bias,
        activations=activations,
        input_scale=0.02 if activations == "int8_static" else None,
    )


def random_stepped_case(
    rng: np.random.Generator,
    shape: tuple[int, int],
    *,
    group_size: int,
    symmetric: bool = True,
    activations: str = "int8_row",
) -> LinearCase:
    """int4 whose groups have integer steps, the largest that int8 codes allow among them."""
    rows, columns = shape
    case = random_case(rng, "int4", shape, symmetric=symmetric, activations=activations)
    groups = (rows, columns // group_size)
    zeros = np.full(groups, 8) if symmetric else rng.integers(0, 16, size=groups)
    largest = np.minimum(128 // np.maximum(zeros, 1), 127 // np.maximum(15 - zeros, 1))
    steps = np.where(rng.random(groups) < 0.3, largest, rng.integers(1, largest + 1))
    return replace(
        case,
        group_size=group_size,
        zero_points_OG=None if symmetric else zeros.astype(np.uint8),
        steps_OG=steps.astype(np.uint8),
    )


def int8_rows(case: LinearCase) -> LinearCase:
    """The int8 weight with one scale per row that a weight with steps is."""
    assert case.steps_OG is not None
    num_groups = case.steps_OG.shape[1]
    codes_OGC = case.values_OI.astype(np.int64).reshape(len(case.values_OI), num_groups, -1)
    zeros_OG = np.int64(8) if case.zero_points_OG is None else case.zero_points_OG.astype(np.int64)
    steps_OG = case.steps_OG.astype(np.int64)
    signed_OGC = (codes_OGC - np.broadcast_to(zeros_OG, steps_OG.shape)[..., None]) * steps_OG[
        ..., None
    ]
    assert signed_OGC.min() >= -128
    assert signed_OGC.max() <= 127
    return replace(
        case,
        kind="int8",
        values_OI=(signed_OGC + 128).astype(np.uint8).reshape(case.values_OI.shape),
        group_size=case.values_OI.shape[1],
        zero_points_OG=None,
        steps_OG=None,
    )


def fp8_value(code: int) -> float:
    """e4m3: a sign, four bits of exponent with bias 7, three of mantissa."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = code >> 3 & 0x0F, code & 0x07
    if code & 0x7F == 0x7F:
        return float("nan")
    if exponent == 0:
        return sign * mantissa / 8 * 2.0**-6
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def dequantized(case: LinearCase) -> npt.NDArray[np.float64]:
    if case.steps_OG is not None:
        return dequantized(int8_rows(case))
    if case.kind == "bf16":
        return (case.values_OI.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if case.scales_OG is None:
        return case.values_OI.astype(np.float64)
    repeat = case.values_OI.shape[1] // case.scales_OG.shape[1]
    scales = np.repeat(case.scales_OG, repeat, axis=1).astype(np.float64)
    if case.kind == "fp8":
        table = np.array([fp8_value(code) for code in range(256)])
        return table[case.values_OI.astype(np.intp)] * scales
    zero = np.full_like(case.scales_OG, 1 << (INTEGER_BITS[case.kind] - 1))
    if case.zero_points_OG is not None:
        zero = case.zero_points_OG.astype(np.float32)
    codes = case.values_OI.astype(np.float64)
    return (codes - np.repeat(zero, repeat, axis=1).astype(np.float64)) * scales


def activation_group(case: LinearCase) -> int:
    """Columns that share a scale of inputs in int8_group and int16_group
    (csrc/weights/packed_linear.cpp)."""
    columns = case.values_OI.shape[1]
    if case.group_size < columns:
        return case.group_size
    padded = -(-columns // 32) * 32
    return next(group for group in (128, 64, 32) if padded % group == 0)


def quantized_input(
    x_TI: Floats, group: int, *, has_power_scales: bool = False
) -> npt.NDArray[np.float64]:
    """Symmetric int8 per row and group, then back: what the integer kernels see of the input. Where
    weights have scales for the same groups those of inputs are powers of two, and codes end at 120.
    """
    tokens, columns = x_TI.shape
    padded = np.zeros((tokens, -(-columns // group) * group), dtype=np.float32)
    padded[:, :columns] = x_TI
    grouped = padded.reshape(tokens, -1, group)
    limit = np.abs(grouped).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), limit, out=np.zeros_like(limit), where=limit > 0)
    codes = np.rint(grouped * inverse)
    scales = (limit / np.float32(127)).astype(np.float64)
    if has_power_scales:
        scales = (limit / np.float32(120)).astype(np.float64)
        scales = 2.0 ** np.maximum(np.ceil(np.log2(np.maximum(scales, 1e-300))), -100)
        codes = np.clip(np.rint(grouped.astype(np.float64) / scales), -128, 127)
    values: npt.NDArray[np.float64] = (codes * scales).reshape(tokens, -1)[:, :columns]
    return values


def statically_quantized_input(x_TI: Floats, scale: float) -> npt.NDArray[np.float64]:
    """int8 with one scale for all inputs: what lies beyond the grid becomes its end."""
    codes_TI = np.clip(np.rint(x_TI * (np.float32(1) / np.float32(scale))), -128, 127)
    values: npt.NDArray[np.float64] = codes_TI.astype(np.float64) * float(np.float32(scale))
    return values


def bf16_input(x_TI: Floats) -> npt.NDArray[np.float64]:
    """Rounded to bf16, ties to even."""
    bits = x_TI.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def seen_input(case: LinearCase, x_TI: Floats) -> npt.NDArray[np.float64]:
    """The input as the layer's arithmetic sees it."""
    if case.activations in ("int8_group", "int16_group"):
        group = activation_group(case)
        has_power_scales = group == case.group_size < case.values_OI.shape[1]
        first_TI = quantized_input(x_TI, group, has_power_scales=has_power_scales)
        if case.activations == "int8_group":
            return first_TI
        rest_TI = (x_TI - first_TI).astype(np.float32)
        return first_TI + quantized_input(rest_TI, group, has_power_scales=has_power_scales)
    if case.activations == "int8_row":
        return quantized_input(x_TI, x_TI.shape[1])
    if case.activations == "int8_static":
        assert case.input_scale is not None
        return statically_quantized_input(x_TI, case.input_scale)
    return bf16_input(x_TI) if case.activations == "bf16" else x_TI.astype(np.float64)


def linear_reference(case: LinearCase, x_TI: Floats) -> npt.NDArray[np.float64]:
    y: npt.NDArray[np.float64] = seen_input(case, x_TI) @ dequantized(case).T
    if case.bias_O is not None:
        y += case.bias_O
    return y

"""Round-to-nearest one value at a time: Python floats (64 bits) and loops."""

import numpy as np
import torch

from paredown.spec.weight import ScaleDType, WeightSpec

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def round_scale(scale: float, dtype: ScaleDType) -> float:
    rounded = torch.tensor(scale, dtype=torch.float32).to(TORCH_DTYPES[dtype]).item()
    return rounded if rounded else torch.finfo(TORCH_DTYPES[dtype]).eps


def quantize_group(values: list[float], spec: WeightSpec, dtype: ScaleDType):
    """Unsigned codes, scale and unsigned zero point of one group."""
    half = 2 ** (spec.bits - 1)
    lowest, highest = min(0.0, *values), max(0.0, *values)
    if spec.symmetric:
        scale = round_scale(max(-lowest, highest) / ((2 * half - 1) / 2), dtype)
        zero = 0
    else:
        scale = round_scale((highest - lowest) / (2 * half - 1), dtype)
        zero = round(min(max(-half - lowest / scale, -half), half - 1))
    codes = [round(min(max(value / scale + zero, -half), half - 1)) for value in values]
    return [code + half for code in codes], scale, zero + half


def quantize_reference(values_OI: np.ndarray, spec: WeightSpec, dtype: ScaleDType):
    num_rows, num_columns = values_OI.shape
    size = spec.group_size or num_columns
    codes = np.zeros((num_rows, num_columns), int)
    scales = np.zeros((num_rows, num_columns // size))
    zeros = np.zeros_like(scales, dtype=int)
    for row in range(num_rows):
        for group in range(num_columns // size):
            columns = slice(group * size, (group + 1) * size)
            values = [float(value) for value in values_OI[row, columns]]
            group_codes, scales[row, group], zeros[row, group] = quantize_group(values, spec, dtype)
            codes[row, columns] = group_codes
    return codes, scales, zeros

"""The arithmetic of training: products in bf16 where the processor has them, float32
for all else."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

from paredown.kernels.isa import supported_isas

Arithmetic = Literal["bf16", "fp32"]

# Instruction sets with products of bf16.
_BF16_SETS = {"avx512_bf16", "amx"}


def choose_arithmetic() -> Arithmetic:
    """Returns the fastest arithmetic of this processor."""
    return "bf16" if _BF16_SETS & set(supported_isas()) else "fp32"


def computing(arithmetic: Arithmetic) -> AbstractContextManager[object]:
    """Returns a context in which products run in that arithmetic. Parameters stay what they are."""
    return torch.autocast("cpu", torch.bfloat16, enabled=arithmetic == "bf16")


def product_dtype(arithmetic: Arithmetic, own: torch.dtype) -> torch.dtype:
    """Returns the dtype of products of tensors whose dtype is `own`."""
    return torch.bfloat16 if arithmetic == "bf16" else own

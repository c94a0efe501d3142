"""The arithmetic of training: products in bf16 where the device has them, float32 for all
else."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

from paredown.kernels.isa import supported_isas
from paredown.spec.device import Device

Arithmetic = Literal["bf16", "fp32"]

# Instruction sets with products of bf16.
_BF16_SETS = {"avx512_bf16", "amx"}


def choose_arithmetic(device: Device) -> Arithmetic:
    """Returns the fastest arithmetic of the device."""
    if device == "cuda":
        return "bf16"
    return "bf16" if _BF16_SETS & set(supported_isas()) else "fp32"


def computing(arithmetic: Arithmetic, device: str = "cpu") -> AbstractContextManager[object]:
    """Returns a context in which products on a device of that type run in that arithmetic.
    Parameters stay what they are."""
    return torch.autocast(device, torch.bfloat16, enabled=arithmetic == "bf16")


def product_dtype(arithmetic: Arithmetic, own: torch.dtype) -> torch.dtype:
    """Returns the dtype of products of tensors whose dtype is `own`."""
    return torch.bfloat16 if arithmetic == "bf16" else own

"""Sums of losses are never coarser than float32."""

import torch
from torch import Tensor


def wide(values: Tensor) -> Tensor:
    """Returns the values in float32, or as they are in float64."""
    return values.to(torch.promote_types(values.dtype, torch.float32))

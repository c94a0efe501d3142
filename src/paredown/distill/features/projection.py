"""Learned linear maps from what a student has to what its teacher has."""

import math

import torch
from torch import Tensor

from paredown.errors import UnsupportedError


def new_projection(num_taught: int, num_own: int, seed: int) -> Tensor:
    """Returns a map as it starts, [num_taught, num_own]: the identity where both have as many, else
    random values that keep sizes."""
    if num_taught == num_own:
        return torch.eye(num_own)
    random = torch.Generator().manual_seed(seed)
    return torch.randn(num_taught, num_own, generator=random) / math.sqrt(num_own)


def check_not_wider(what: str, num_own: int, num_taught: int) -> None:
    """Raises UnsupportedError where the student has more of `what` than its teacher."""
    if num_own > num_taught:
        raise UnsupportedError(
            f"a student that learns from features cannot have more {what} than its teacher",
            seen=f"{num_own:,}, and {num_taught:,} of the teacher",
            remedy="Learn from the teacher's distribution alone (--method soft-label).",
        )

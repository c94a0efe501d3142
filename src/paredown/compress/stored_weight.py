"""A finished weight, on a grid or in codebooks: what it is on disk and at work."""

import torch
from torch import Tensor

from paredown.formats.dequantize import unrounded
from paredown.formats.stored import aqlm, compressed_tensors
from paredown.formats.stored.aqlm import AdditiveWeight
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import Weight


def stored_tensors(weight: Weight | AdditiveWeight) -> dict[str, StoredTensor]:
    """By what follows the module's name and a dot."""
    if isinstance(weight, AdditiveWeight):
        return aqlm.encode(weight)
    return compressed_tensors.encode(weight)


def values_at_work(weight: Weight | AdditiveWeight) -> Tensor:
    """[O, I], what the native core multiplies with."""
    if isinstance(weight, AdditiveWeight):
        return torch.from_numpy(aqlm.dequantize(weight))
    return torch.from_numpy(unrounded(weight))

"""Decoder parameters whose rows share one tensor in a checkpoint: query, key and value, or gate and
up."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paredown.models.fused_rows import fused_rows, own_rows


def stored_rows(parameters: Sequence[Tensor], num_blocks: int = 1) -> Tensor:
    """Returns the shared tensor in float32: the rows of all parameters, in the order of
    Names.fused."""
    parts = [parameter.detach().float() for parameter in parameters]
    if len(parts) == 1:
        return parts[0]
    return torch.from_numpy(fused_rows([part.numpy() for part in parts], num_blocks))


def set_rows(
    parameters: Sequence[Tensor], values: npt.NDArray[np.float32], num_blocks: int = 1
) -> None:
    """Copies each parameter's own rows from the shared tensor `values`."""
    sizes = [len(parameter) for parameter in parameters]
    for part, parameter in enumerate(parameters):
        own = values if len(sizes) == 1 else values[own_rows(sizes, part, num_blocks)]
        parameter.data = torch.from_numpy(np.ascontiguousarray(own))

"""Tells a pruned matrix, whose zeros must stay, from one that has zeros by chance."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Matrices with this share of zeros were pruned. Dequantized GGUF files have up to a tenth by
# chance, and no pattern in use removes less than a quarter.
_PRUNED_SHARE = 0.25


def held_zeros(weight_OI: Tensor | npt.NDArray[np.floating], *, recorded: bool) -> Tensor | None:
    """Returns the mask of a pruned weight, false where it is exactly 0; None if it was not pruned.
    `recorded` says that its checkpoint lists it as pruned, whatever its share of zeros."""
    values_OI = weight_OI if isinstance(weight_OI, Tensor) else torch.from_numpy(weight_OI)
    mask_OI = values_OI != 0
    num_zeros = mask_OI.numel() - int(mask_OI.count_nonzero())
    pruned = num_zeros > 0 and (recorded or num_zeros >= _PRUNED_SHARE * mask_OI.numel())
    return mask_OI if pruned else None

"""Inverse transform sampling: the token where a row's running sum passes a number.

Shapes: N rows, S draws of each, V vocabulary.
"""

import torch
from torch import Tensor


def drawn(log_p_NV: Tensor, draws_NS: Tensor) -> Tensor:
    """Returns the tokens [N, S] that float64 numbers from 0 to below 1 choose."""
    sums_NV = log_p_NV.double().exp().cumsum(-1)
    # Rounding leaves the last sum near 1, and no draw may lie beyond it.
    return torch.searchsorted(sums_NV, draws_NS * sums_NV[:, -1:], right=True)

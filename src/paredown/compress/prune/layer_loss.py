"""The loss of changing a linear layer's weights: 1/2 d H d^T for each row d of the change.

With H from `Moments` this is the mean of (d x)^2 over the calibration inputs x. Shapes: O output
rows, I input columns.
"""

import torch
from torch import Tensor

# The rows and the columns of H that are multiplied at once, which bounds the float64 copies.
_STRIPE_COLUMNS = 512
_VALUES = 1 << 23


def row_losses(change_OI: Tensor, hessian_II: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Returns the loss of each row [O], in float64. Products are computed in `dtype`. Two losses
    that are to be told apart need float64: a good change lies where H is small, and float32 loses
    what is left."""
    num_rows, num_columns = change_OI.shape
    losses_O = torch.zeros(num_rows, dtype=torch.float64)
    size = max(_STRIPE_COLUMNS, _VALUES // num_columns)
    for row in range(0, num_rows, size):
        change_RI = change_OI[row : row + size].to(dtype)
        for column in range(0, num_columns, _STRIPE_COLUMNS):
            columns = slice(column, column + _STRIPE_COLUMNS)
            product_RC = change_RI @ hessian_II[:, columns].to(dtype)
            losses_O[row : row + size] += (product_RC * change_RI[:, columns]).double().sum(1)
    return losses_O.div_(2).clamp_(min=0)


def layer_loss(change_OI: Tensor, hessian_II: Tensor, dtype: torch.dtype = torch.float64) -> float:
    """Returns the loss of all rows together."""
    return float(row_losses(change_OI, hessian_II, dtype).sum())

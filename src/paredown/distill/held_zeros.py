"""The zeros of pruned matrices, which training leaves exactly 0."""

from torch import Tensor

from paredown.models.decoder.decoder import Decoder
from paredown.models.roles import linear_roles

# Matrices are pruned by no less; a matrix that nobody pruned has hardly any zeros.
_LEAST_SHARE = 0.25


def held_zeros(decoder: Decoder) -> dict[str, Tensor]:
    """Returns a mask of the zeros of each pruned linear layer, by the parameter's name."""
    found = {}
    for index in range(decoder.spec.num_layers):
        for role in linear_roles(decoder.spec, index):
            name = f"layers.{index}.{role}.weight"
            is_zero_OI = decoder.get_parameter(name).detach() == 0
            if int(is_zero_OI.sum()) >= _LEAST_SHARE * is_zero_OI.numel():
                found[name] = is_zero_OI
    return found

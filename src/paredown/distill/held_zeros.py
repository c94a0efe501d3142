"""The zeros of pruned matrices, which training leaves exactly 0."""

from torch import Tensor

from paredown.compress.prune import held_zeros as pruned_weight
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.roles import linear_roles


def held_zeros(decoder: Decoder, pruned: Checkpoint) -> dict[str, Tensor]:
    """Returns a mask of the zeros of each pruned linear layer, by the parameter's name; `pruned` is
    the decoder's checkpoint, whose record names modules that were pruned."""
    found = {}
    for index in range(decoder.spec.num_layers):
        for role in linear_roles(decoder.spec, index):
            name = f"layers.{index}.{role}.weight"
            mask_OI = pruned_weight.held_zeros(
                decoder.get_parameter(name).detach(),
                recorded=pruned.linear_name(role, index) in pruned.pruned,
            )
            if mask_OI is not None:
                found[name] = ~mask_OI
    return found

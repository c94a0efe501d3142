"""Computes a mixture of experts on a tile: each expert computes all rows of the tile.

Shapes: S rows, D hidden size, E experts.
"""

import torch
from torch import Tensor

from paredown.models.decoder.mixture_of_experts import RunExpert, choose_experts
from paredown.spec.experts import Experts


def mix_tile(x_SD: Tensor, logits_SE: Tensor, experts: Experts, run: RunExpert) -> Tensor:
    """Does what `mix` does. The number of rows that an expert computes does not depend on where
    tokens are sent; only the outputs of its own tokens are used."""
    weights_SK, chosen_SK = choose_experts(logits_SE, experts)
    y_SD = torch.zeros_like(x_SD)
    for expert in sorted(set(chosen_SK.flatten().tolist())):
        rows, ranks = (chosen_SK == expert).nonzero(as_tuple=True)
        y_SD.index_add_(0, rows, weights_SK[rows, ranks, None] * run(expert, x_SD)[rows])
    return y_SD

"""A mixture of experts on a tile: an expert computes all of its rows, whoever is sent to it.

Shapes: S rows, D hidden size, E experts.
"""

import torch
from torch import Tensor

from paredown.models.decoder.mixture_of_experts import RunExpert, choose_experts
from paredown.spec.experts import Experts


def mix_tile(x_SD: Tensor, logits_SE: Tensor, experts: Experts, run: RunExpert) -> Tensor:
    """Does what `mix` does. How many rows an expert is given does not depend on where the others
    are sent; of its output those rows are used that are sent to it."""
    weights_SK, chosen_SK = choose_experts(logits_SE, experts)
    y_SD = torch.zeros_like(x_SD)
    for expert in sorted(set(chosen_SK.flatten().tolist())):
        rows, ranks = (chosen_SK == expert).nonzero(as_tuple=True)
        y_SD.index_add_(0, rows, weights_SK[rows, ranks, None] * run(expert, x_SD)[rows])
    return y_SD

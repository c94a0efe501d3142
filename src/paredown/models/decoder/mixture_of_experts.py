"""A mixture of experts in PyTorch, which takes the place of an MLP (arXiv 1701.06538, 2401.04088).

Shapes: N tokens, D hidden size, E experts, K experts of a token.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from paredown.spec.experts import Experts

# Runs the expert of that index on tokens [N, D].
RunExpert = Callable[[int, Tensor], Tensor]
# The type of `mix`.
ExpertMixer = Callable[[Tensor, Tensor, Experts, RunExpert], Tensor]


def choose_experts(logits_NE: Tensor, experts: Experts) -> tuple[Tensor, Tensor]:
    """Returns weights and indices [N, K] of the experts with the largest router probabilities,
    largest first. Among equals the lower index comes first."""
    shares_NE = logits_NE.softmax(-1)
    sorted_NE, order_NE = shares_NE.sort(stable=True, descending=True)
    weights_NK = sorted_NE[:, : experts.num_per_token]
    if experts.is_normalized:
        weights_NK = weights_NK / weights_NK.sum(-1, keepdim=True)
    return weights_NK, order_NE[:, : experts.num_per_token]


def mix(x_ND: Tensor, logits_NE: Tensor, experts: Experts, run: RunExpert) -> Tensor:
    """Returns [N, D]: each token's weighted expert outputs, added in the order of the experts'
    indices. `run` is called with an expert's index and the tokens routed to it, and not at all for
    an expert without tokens."""
    # Products may be coarser than the tokens (distill/arithmetic.py), their sums are not.
    weights_NK, chosen_NK = choose_experts(logits_NE.to(x_ND.dtype), experts)
    y_ND = torch.zeros_like(x_ND)
    for expert in range(experts.num):
        tokens, ranks = (chosen_NK == expert).nonzero(as_tuple=True)
        if len(tokens):
            part = run(expert, x_ND[tokens])
            y_ND.index_add_(0, tokens, weights_NK[tokens, ranks, None] * part)
    return y_ND

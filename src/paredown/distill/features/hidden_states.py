"""Hidden states through a learned projection (TinyBERT, arXiv 1909.10351, equations 8 and 9).

    |W h - t|^2 / |t|^2

h and t are a place's hidden states in the student and its teacher; for the embedding they are the
states before the first layer. One W serves all states, as in the authors' program.

The paper has no divisor. Decoders have places whose states are hundreds of times as large as others
(arXiv 2402.17762), beside which nothing else would be learned; divided, each place counts alike.
Where the teacher has nothing, as in the embedding of a token that it never saw, nothing is learned.

Shapes: N targets, D student's hidden size, E teacher's.
"""

import torch
from torch import Tensor

from paredown.distill.features.wide import wide

# The mean square of a state below which it is none.
LEAST_SIZE = 1e-12


def hidden_losses(own_ND: Tensor, taught_NE: Tensor, projection_ED: Tensor) -> Tensor:
    """Returns the loss of each target, [N]."""
    taught_NE = wide(taught_NE)
    distance_N = (wide(own_ND @ projection_ED.T) - taught_NE).square().mean(-1)
    size_N = taught_NE.square().mean(-1)
    is_state_N = size_N > LEAST_SIZE
    return torch.where(is_state_N, distance_N / size_N.where(is_state_N, 1.0), 0.0)

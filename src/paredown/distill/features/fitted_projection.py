"""The projection of hidden states as it starts: the one that brings a student as it is nearest to
its teacher.

A random one would pull the student to nowhere until it is learned itself. Shapes: B rows, T tokens,
N targets, D student's hidden size, E teacher's.
"""

import numpy as np
import torch
from torch import Tensor

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.features.hidden_states import LEAST_SIZE
from paredown.distill.features.layer_map import LayerMap
from paredown.distill.features.layer_pair import at_targets
from paredown.distill.forward import embed_batch, layer_positions
from paredown.distill.rows import BatchRows
from paredown.distill.text_outputs import every_token
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.spec.device import Device

# As many tokens for each column of the student.
_TOKENS_PER_COLUMN = 4
# Added to the diagonal, in parts of its mean.
_RIDGE = 1e-4


def fitted_projection(
    student: Decoder, teacher: Decoder, layer_map: LayerMap, rows: BatchRows, arithmetic: Arithmetic
) -> Tensor:
    """Returns the projection [E, D] that lowers hidden_states.py most on the first rows, by least
    squares over all states. Where both have as many columns it is the identity."""
    num_own, num_taught = student.spec.hidden_size, teacher.spec.hidden_size
    if num_own == num_taught:
        return torch.eye(num_own)
    own_DD, both_DE = (
        torch.zeros(num_own, num_own).double(),
        torch.zeros(num_own, num_taught).double(),
    )
    num_tokens = 0
    for row in range(rows.num_rows):
        batch = rows.batch(np.array([row]))
        if not student.spec.generates:
            batch = every_token(batch)
        own, taught = (_states(decoder, batch, arithmetic) for decoder in (student, teacher))
        for state, taught_state in enumerate(layer_map.states):
            own_ND, taught_NE = own[state], taught[taught_state]
            size_N1 = taught_NE.square().mean(-1, keepdim=True)
            # Where the teacher has nothing, nothing is learned.
            weight_N1 = torch.where(size_N1 > LEAST_SIZE, 1 / size_N1, 0.0)
            own_DD += own_ND.T @ (own_ND * weight_N1)
            both_DE += own_ND.T @ (taught_NE * weight_N1)
        num_tokens += batch.num_targets
        if num_tokens >= _TOKENS_PER_COLUMN * num_own:
            break
    ridge = _RIDGE * own_DD.diagonal().mean().clamp(min=1e-12)
    own_DD += ridge * torch.eye(num_own).double()
    found_DE: Tensor = torch.linalg.solve(own_DD, both_DE)
    return found_DE.T.float().contiguous()


def _states(decoder: Decoder, batch: Batch, arithmetic: Arithmetic) -> list[Tensor]:
    """Returns the states at the targets in float64, [N, D], from the embedding on."""
    device: Device = "cpu" if decoder.device.type == "cpu" else "cuda"
    there = batch.to(device)
    with torch.no_grad(), torch.device(device), computing(arithmetic, device):
        states = [embed_batch(decoder, there)]
        for layer in decoder.layers:
            assert isinstance(layer, Layer)
            states.append(layer(states[-1], *layer_positions(layer, there)))
    return [at_targets(state_BTD, there).double().cpu() for state_BTD in states]

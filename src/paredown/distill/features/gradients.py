"""Gradients: what a change of a hidden state does to the loss of the text is to be the same.

    |P g - t|^2 |h|^2 / E      for each target's place, the mean over the states

g and t are the gradients of the text's cross-entropy with respect to a hidden state of the student
and to the teacher's that belongs to it (layer_map.py), P is a learned projection, h the teacher's
state and E its size. It is the mean square of the difference, in nats, that a change as large as
the state itself would make, so that large states and small ones count alike.

Gradients of gradients need every operation of the student a second time: a step takes about three
times as long, keeps all logits, and never recomputes. Shapes: B rows, T tokens, N targets, D
student's hidden size, E teacher's.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.features.layer_map import LayerMap
from paredown.distill.features.layer_pair import at_targets
from paredown.distill.features.wide import wide
from paredown.distill.forward import embed_batch, layer_positions
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.teacher import DecoderTeacher
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer

PROJECTION = "features.gradient"


@dataclass(frozen=True, kw_only=True)
class GradientObjective:
    """Implements Objective by a loss of logits and `weight` times that of gradients."""

    teacher: DecoderTeacher
    text_loss: TokenLoss
    projection_ED: Tensor
    weight: float
    layer_map: LayerMap

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        return {PROJECTION: self.projection_ED}

    def total(
        self, student: Decoder, batch: Batch, arithmetic: Arithmetic, *, recomputes: bool
    ) -> Tensor:
        with torch.enable_grad(), computing(arithmetic, batch.device_type):
            taught = _run(self.teacher.decoder, batch, self.layer_map.states)
            known_NV = taught.logits_NV.detach().log_softmax(-1)
            wanted = taught.gradients(batch, is_kept=False)
            own = _run(student, batch, range(student.spec.num_layers + 1))
            logits = self.text_loss.losses(own.logits_NV, batch.targets(), known_NV).sum()
            features = logits.new_zeros(())
            found = own.gradients(batch, is_kept=True)
            for own_BTD, taught_BTE, state_BTE in zip(found, wanted, taught.states, strict=True):
                losses_N = gradient_losses(
                    at_targets(own_BTD, batch),
                    at_targets(taught_BTE, batch),
                    at_targets(state_BTE.detach(), batch),
                    self.projection_ED,
                )
                features = features + losses_N.sum() / len(found)
        return logits + self.weight * features


def gradient_losses(
    own_ND: Tensor, taught_NE: Tensor, state_NE: Tensor, projection_ED: Tensor
) -> Tensor:
    """Returns the loss of each target, [N]."""
    distance_NE = wide(own_ND @ projection_ED.T) - wide(taught_NE)
    return distance_NE.square().sum(-1) * wide(state_NE).square().mean(-1)


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A forward pass: some hidden states, and the logits of the targets."""

    states: list[Tensor]
    logits_NV: Tensor

    def gradients(self, batch: Batch, *, is_kept: bool) -> tuple[Tensor, ...]:
        """Returns the gradient of the cross-entropy with respect to each state, [B, T, D]. With
        `is_kept` gradients of them can be taken."""
        loss = CrossEntropy().losses(self.logits_NV, batch.targets(), None).sum()
        return torch.autograd.grad(loss, self.states, create_graph=is_kept)


def _run(decoder: Decoder, batch: Batch, kept: range | tuple[int, ...]) -> _Run:
    """Runs the model, in single operations that have gradients of gradients."""
    x_BTD = embed_batch(decoder, batch)
    if not x_BTD.requires_grad:
        x_BTD.requires_grad_()
    states = [x_BTD]
    for layer in decoder.layers:
        assert isinstance(layer, Layer)
        plain = copy(layer)
        plain.is_fused = False
        states.append(plain(states[-1], *layer_positions(plain, batch)))
    normed_ND = decoder.final_norm(at_targets(states[-1], batch))
    weight_VD, bias_V = decoder.output_layer()
    products_NV = wide(functional.linear(normed_ND, weight_VD, bias_V))
    return _Run(
        states=[states[number] for number in kept],
        logits_NV=decoder.scaled_logits(products_NV),
    )

"""Objective: what a training step lowers, and the one that looks at the student's logits."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.chunked_logits import ChunkLoss, summed_losses
from paredown.distill.forward import run_layers
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.teacher import Teacher
from paredown.models.decoder.decoder import Decoder


class Objective(Protocol):
    """The loss of a batch, as a sum, so that batches of unlike length can be added up."""

    def total(
        self, student: Decoder, batch: Batch, arithmetic: Arithmetic, *, recomputes: bool
    ) -> Tensor:
        """Returns the sum of the losses of the batch's targets, a scalar with gradients. It is
        called by several threads, each with another batch. `recomputes` saves memory
        (forward.py)."""
        ...


@dataclass(frozen=True, kw_only=True)
class LogitObjective:
    """Implements Objective by a loss of each target's logits. Positions that are no targets are
    left out before the output layer, so nothing about them can reach the loss."""

    loss: TokenLoss
    teacher: Teacher | None = None

    def __post_init__(self) -> None:
        assert self.teacher is not None or not self.loss.needs_teacher

    def total(
        self, student: Decoder, batch: Batch, arithmetic: Arithmetic, *, recomputes: bool
    ) -> Tensor:
        known = None
        if self.loss.needs_teacher:
            assert self.teacher is not None
            known = self.teacher.predict(batch)
        targets_N = batch.targets()

        def losses(logits_NV: Tensor, rows: slice) -> Tensor:
            teacher_NV = None if known is None else known(rows)
            return self.loss.losses(logits_NV, targets_N[rows], teacher_NV)

        return logit_total(student, batch, losses, arithmetic, recomputes=recomputes)


def logit_total(
    student: Decoder,
    batch: Batch,
    losses: ChunkLoss,
    arithmetic: Arithmetic,
    *,
    recomputes: bool,
) -> Tensor:
    """Runs the student and returns the sum of what `losses` makes of the targets' logits."""
    with computing(arithmetic, batch.device_type):
        x_BTD = run_layers(student, batch, recomputes=recomputes)
        normed_ND = student.final_norm(x_BTD.flatten(0, 1)[batch.places()])
    return summed_losses(student, normed_ND, losses, arithmetic)

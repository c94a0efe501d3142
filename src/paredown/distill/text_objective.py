"""TextObjective: what an encoder learns, a loss of each text's vector, scores or labels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.forward import run_layers
from paredown.distill.losses.cosine import Cosine
from paredown.distill.losses.squared_error import SquaredError
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.objective import LogitObjective, Objective
from paredown.distill.teacher import DecoderTeacher, Teacher
from paredown.distill.text_outputs import text_outputs
from paredown.models.decoder.decoder import Decoder
from paredown.spec.model import ModelSpec


def has_labels(spec: ModelSpec) -> bool:
    """Returns whether the model chooses one of several labels."""
    head = spec.head
    return (
        not spec.generates
        and head is not None
        and head.kind == "classification"
        and head.output_size(spec.hidden_size) > 1
    )


def loss_for(spec: ModelSpec, asked: TokenLoss) -> TokenLoss:
    """Returns the loss of a model's texts: what was asked for where it gives a distribution, of
    tokens or of labels, else the distance of vectors or of scores."""
    if spec.generates or has_labels(spec):
        return asked
    is_score = spec.head is not None and spec.head.kind == "classification"
    return SquaredError() if is_score else Cosine()


def objective_for(spec: ModelSpec, asked: TokenLoss, teacher: Teacher | None) -> Objective:
    """Returns what a student with that spec lowers."""
    if spec.generates:
        return LogitObjective(loss=asked, teacher=teacher)
    assert teacher is None or isinstance(teacher, DecoderTeacher)
    return TextObjective(loss=loss_for(spec, asked), teacher=teacher)


@dataclass(frozen=True, kw_only=True)
class TextObjective:
    """Implements Objective for batches of whole texts (encoder_rows.py). The loss of a text with a
    vector for each token is their mean."""

    loss: TokenLoss
    teacher: DecoderTeacher | None = None

    def __post_init__(self) -> None:
        assert self.teacher is not None or not self.loss.needs_teacher

    def total(
        self, student: Decoder, batch: Batch, arithmetic: Arithmetic, *, recomputes: bool
    ) -> Tensor:
        taught_BTD = None
        if self.teacher is not None and self.loss.needs_teacher:
            with torch.no_grad(), computing(self.teacher.arithmetic, batch.device_type):
                taught_BTD = run_layers(self.teacher.decoder, batch)
        with computing(arithmetic, batch.device_type):
            own_BTD = run_layers(student, batch, recomputes=recomputes)
        return self.total_from(student, own_BTD, taught_BTD, batch)

    def total_from(
        self, student: Decoder, own_BTD: Tensor, taught_BTD: Tensor | None, batch: Batch
    ) -> Tensor:
        """Returns the sum of the texts' losses from the outputs of both models' last layers."""
        own = text_outputs(student, own_BTD, batch)
        taught_RE = None
        if taught_BTD is not None:
            assert self.teacher is not None
            with torch.no_grad():
                taught_RE = text_outputs(self.teacher.decoder, taught_BTD, batch).values_RE
                if has_labels(student.spec):
                    taught_RE = taught_RE.log_softmax(-1)
        losses_R = self.loss.losses(own.values_RE, batch.targets(), taught_RE)
        return (losses_R * own.weights_R).sum()

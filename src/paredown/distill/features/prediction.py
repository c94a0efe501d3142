"""Prediction: the loss beside that of features, of what a model is for: the logits of tokens, or
what an encoder makes of texts.

Shapes: B rows, T tokens, D hidden size, N places where features are compared.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.chunked_logits import summed_losses
from paredown.distill.features.layer_pair import at_targets
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.teacher import DecoderTeacher
from paredown.distill.text_objective import TextObjective, loss_for
from paredown.distill.text_outputs import every_token, token_weights
from paredown.models.decoder.decoder import Decoder


class Prediction(Protocol):
    """`compared` says where features are compared, and `total_of` adds up their losses there so
    that they count as `total` does."""

    def compared(self, batch: Batch) -> Batch:
        """Returns the batch with the places where features are compared as targets."""
        ...

    def total_of(self, features_N: Tensor, batch: Batch) -> Tensor:
        """Returns the sum of the losses of features."""
        ...

    def total(
        self,
        student: Decoder,
        own_BTD: Tensor,
        taught_BTD: Tensor,
        batch: Batch,
        arithmetic: Arithmetic,
    ) -> Tensor:
        """Returns the sum of the losses, from the outputs of both models' last layers."""
        ...


def prediction_for(student: Decoder, loss: TokenLoss, teacher: DecoderTeacher) -> Prediction:
    """Returns the prediction of a student; `loss` is that of distributions."""
    if student.spec.generates:
        return LogitPrediction(loss=loss, teacher=teacher)
    objective = TextObjective(loss=loss_for(student.spec, loss), teacher=teacher)
    return TextPrediction(objective=objective)


@dataclass(frozen=True, kw_only=True)
class LogitPrediction:
    """Implements Prediction by a loss of each target's logits. Features are compared at the
    targets."""

    loss: TokenLoss
    teacher: DecoderTeacher

    def compared(self, batch: Batch) -> Batch:
        return batch

    def total_of(self, features_N: Tensor, batch: Batch) -> Tensor:
        return features_N.sum()

    def total(
        self,
        student: Decoder,
        own_BTD: Tensor,
        taught_BTD: Tensor,
        batch: Batch,
        arithmetic: Arithmetic,
    ) -> Tensor:
        with computing(arithmetic, batch.device_type):
            normed_ND = student.final_norm(at_targets(own_BTD, batch))
        known = self.teacher.predict_from(taught_BTD, batch)
        targets_N = batch.targets()

        def losses(logits_NV: Tensor, rows: slice) -> Tensor:
            return self.loss.losses(logits_NV, targets_N[rows], known(rows))

        return summed_losses(student, normed_ND, losses, arithmetic)


@dataclass(frozen=True, kw_only=True)
class TextPrediction:
    """Implements Prediction by a loss of each text. Features are compared at every token, and count
    as their mean over the text."""

    objective: TextObjective

    def compared(self, batch: Batch) -> Batch:
        return every_token(batch)

    def total_of(self, features_N: Tensor, batch: Batch) -> Tensor:
        return (features_N * token_weights(batch)).sum()

    def total(
        self,
        student: Decoder,
        own_BTD: Tensor,
        taught_BTD: Tensor,
        batch: Batch,
        arithmetic: Arithmetic,
    ) -> Tensor:
        return self.objective.total_from(student, own_BTD, taught_BTD, batch)

"""PolicyObjective: policy gradients on tokens that a model has chosen, and a loss of given text.

A step moves the weights once from the samples of the student that it begins with. So the ratio of
the new and the old probability, which PPO (arXiv 1707.06347) clips, is always 1.
"""

from dataclasses import dataclass, field

from torch import Tensor

from paredown.distill.arithmetic import Arithmetic
from paredown.distill.batch import Batch
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.objective import LogitObjective, logit_total
from paredown.distill.on_policy.policy_loss import policy_losses
from paredown.distill.teacher import Teacher
from paredown.errors import ConfigError
from paredown.models.decoder.decoder import Decoder


@dataclass(frozen=True, kw_only=True)
class PolicyObjective:
    """Implements Objective. Batches without advantages, such as a text's rows, are learned by
    `text_loss`. `kl_weight` is that of the reverse KL divergence to the teacher at each token, for
    a step that ignores what later tokens cost. Raises ConfigError for a weight out of range."""

    kl_weight: float
    teacher: Teacher | None = None
    text_loss: TokenLoss = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        check_kl_weight(self.kl_weight)
        assert self.teacher is not None or self.kl_weight == 0

    def total(
        self, student: Decoder, batch: Batch, arithmetic: Arithmetic, *, recomputes: bool
    ) -> Tensor:
        if batch.advantages_BT is None:
            plain = LogitObjective(loss=self.text_loss, teacher=self.teacher)
            return plain.total(student, batch, arithmetic, recomputes=recomputes)
        known = None
        if self.teacher is not None and self.kl_weight:
            known = self.teacher.predict(batch)
        targets_N, advantages_N = batch.targets(), batch.advantages_BT[batch.is_target_BT]
        weights_N = None if batch.weights_BT is None else batch.weights_BT[batch.is_target_BT]

        def losses(logits_NV: Tensor, rows: slice) -> Tensor:
            return policy_losses(
                logits_NV,
                targets_N[rows],
                advantages_N[rows],
                None if weights_N is None else weights_N[rows],
                None if known is None else known(rows),
                self.kl_weight,
            )

        return logit_total(student, batch, losses, arithmetic, recomputes=recomputes)


def check_kl_weight(weight: float) -> None:
    """Raises ConfigError for a weight of the divergence that is out of range."""
    if not 0 <= weight < float("inf"):
        raise ConfigError(
            "the weight of the divergence from the teacher is out of range",
            seen=weight,
            remedy="Give a number from 0.",
        )

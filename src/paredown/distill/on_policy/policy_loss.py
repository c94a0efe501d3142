"""The loss of tokens that a model has chosen, whose gradient is a policy gradient.

    w (-A ln q(y) + c KL(q || p))

y is the chosen token, q the student's distribution and p the teacher's. A says how much better the
choice was than others (its advantage), w how much the token counts. Both are numbers that no
gradient passes. Shapes: N targets, V tokens of the vocabulary.
"""

from torch import Tensor

from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.reverse_kl import ReverseKL


def policy_losses(
    logits_NV: Tensor,
    targets_N: Tensor,
    advantages_N: Tensor,
    weights_N: Tensor | None,
    teacher_NV: Tensor | None,
    kl_weight: float,
) -> Tensor:
    """Returns the loss of each target, [N]. `kl_weight` is c; without a teacher's logarithms of
    probabilities it must be 0."""
    assert teacher_NV is not None or kl_weight == 0
    losses_N = advantages_N * CrossEntropy().losses(logits_NV, targets_N, None)
    if teacher_NV is not None and kl_weight:
        losses_N = losses_N + kl_weight * ReverseKL().losses(logits_NV, targets_N, teacher_NV)
    return losses_N if weights_N is None else weights_N * losses_N

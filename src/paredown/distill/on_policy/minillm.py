"""MiniLLM: the reverse KL divergence of whole answers, by policy gradient (arXiv 2306.08543).

    r_t = ln p(y_t) - ln q(y_t)                      the reward of a token
    R_t = mean of r over the tokens after y_t        length normalization (equation 6)
    w_t = q(y_t) / p~(y_t)                           importance weight (equation 4)
    loss_t = w_t (KL(q_t || p_t) - (R_t - b) ln q(y_t))

y is drawn from p~, the student q mixed with its teacher p (sample.py), which keeps out texts that
please the teacher and say nothing. The divergence is the single-step term, with its exact gradient;
the rest is what a token does to those after it. R_t and w_t are numbers.

The authors' program also whitens R, clips PPO's ratio over several passes and mixes in a text's
cross-entropy. Here b is the mean of R over the batch: it takes noise away, and R stays in the units
of the single-step term. A step moves the weights once. A text is mixed in by MixedBatches.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.distill.batch import Batch
from paredown.distill.on_policy.policy_objective import PolicyObjective
from paredown.distill.on_policy.sample import sample
from paredown.distill.on_policy.samples import Samples
from paredown.distill.on_policy.sampling import Sampling
from paredown.distill.on_policy.student_batches import check_teacher_share
from paredown.distill.teacher import DecoderTeacher
from paredown.models.decoder.decoder import Decoder

# The most that one token's reward counts, either way, as in the authors' program.
_MOST_REWARD = 100.0
# Beyond it a weight is as large or small as float32 has use for.
_MOST_LOG_RATIO = 50.0


@dataclass(frozen=True, kw_only=True)
class MiniLLMBatches:
    """Implements BatchSource for `minillm_objective`. Raises ConfigError for a share out of range,
    and for draws at another temperature, whose weights would be wrong."""

    sampling: Sampling
    teacher: DecoderTeacher
    teacher_share: float = 0.2
    normalizes_length: bool = True

    def __post_init__(self) -> None:
        check_teacher_share(self.teacher_share)
        self.sampling.check_own_distribution()

    @property
    def num_rows(self) -> int:
        return self.sampling.num_rows

    @property
    def step_tokens(self) -> int:
        return self.sampling.step_tokens

    def batch(self, step: int, student: Decoder) -> Batch:
        drawn = sample(student, self.sampling, step, self.teacher, self.teacher_share)
        later_BT, has_later_BT = later_rewards(drawn, normalizes_length=self.normalizes_length)
        baseline = later_BT[has_later_BT].mean() if has_later_BT.any() else later_BT.new_zeros(())
        advantages_BT = torch.where(has_later_BT, later_BT - baseline, 0.0)
        return drawn.batch(advantages_BT, importance_weights(drawn, self.teacher_share))


def minillm_objective(teacher: DecoderTeacher) -> PolicyObjective:
    """Returns the objective of `MiniLLMBatches`; batches of text add their cross-entropy."""
    return PolicyObjective(kl_weight=1.0, teacher=teacher)


def later_rewards(drawn: Samples, *, normalizes_length: bool) -> tuple[Tensor, Tensor]:
    """Returns the rewards after each drawn token, [B, T], as their mean or their sum, and which
    tokens have any after them."""
    assert drawn.log_p_BT is not None
    is_drawn_BT = drawn.drawn_places()
    rewards_BT = (drawn.log_p_BT - drawn.log_q_BT).clamp(-_MOST_REWARD, _MOST_REWARD)
    rewards_BT = torch.where(is_drawn_BT, rewards_BT, 0.0)
    later_BT = _after(rewards_BT)
    counts_BT = _after(is_drawn_BT.to(rewards_BT.dtype))
    if normalizes_length:
        later_BT = later_BT / counts_BT.clamp(min=1)
    has_later_BT = is_drawn_BT & (counts_BT > 0)
    return torch.where(has_later_BT, later_BT, 0.0), has_later_BT


def importance_weights(drawn: Samples, teacher_share: float) -> Tensor:
    """Returns q / p~ of each drawn token, [B, T], and 0 elsewhere."""
    assert drawn.log_p_BT is not None
    ratio_BT = (drawn.log_p_BT - drawn.log_q_BT).clamp(-_MOST_LOG_RATIO, _MOST_LOG_RATIO).exp()
    weights_BT = 1 / (1 - teacher_share + teacher_share * ratio_BT)
    return torch.where(drawn.drawn_places(), weights_BT, 0.0)


def _after(values_BT: Tensor) -> Tensor:
    """Returns the sum of the values after each place."""
    return values_BT.flip(1).cumsum(1).flip(1) - values_BT

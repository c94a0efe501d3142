"""RewardBatches: answers of the student, each compared with the others to its prompt.

    A_i = r_i - mean of r_j over the other answers j to the same prompt

The other answers make a baseline that takes noise away without bias (RLOO, arXiv 2402.14740). With
PolicyObjective, whose divergence keeps the student near its teacher, this is reinforcement learning
from a reward. It needs some good answers to begin with, which cross-entropy on examples gives: as
an earlier run, as the first steps (staged_batches.py), or as some of them (mixed_batches.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from paredown.distill.batch import Batch
from paredown.distill.on_policy.reward import Reward, checked_scores
from paredown.distill.on_policy.sample import sample
from paredown.distill.on_policy.sampling import Sampling
from paredown.errors import ConfigError
from paredown.models.decoder.decoder import Decoder

# Called with the number of a step and the rewards of its answers.
OnRewards = Callable[[int, Sequence[float]], None]


@dataclass(frozen=True, kw_only=True)
class RewardBatches:
    """Implements BatchSource for PolicyObjective. `decode` makes the text that `reward` scores.
    Raises ConfigError without two answers to each prompt, and for draws at another temperature."""

    sampling: Sampling
    reward: Reward
    decode: Callable[[Sequence[int]], str]
    on_rewards: OnRewards | None = None

    def __post_init__(self) -> None:
        self.sampling.check_own_distribution()
        if self.sampling.num_each < 2:
            raise ConfigError(
                "an answer is compared with others to its prompt",
                seen=f"{self.sampling.num_each} answer to each",
                remedy="Draw at least 2 answers to each prompt.",
            )

    @property
    def num_rows(self) -> int:
        return self.sampling.num_rows

    @property
    def step_tokens(self) -> int:
        return self.sampling.step_tokens

    def batch(self, step: int, student: Decoder) -> Batch:
        """Raises TrainingError where the reward fails."""
        drawn = sample(student, self.sampling, step)
        prompts = [self.decode(ids) for ids in self.sampling.step_prompts(step)]
        answers = [self.decode(ids) for ids in drawn.answers()]
        rewards = checked_scores(self.reward, prompts, answers)
        if self.on_rewards is not None:
            self.on_rewards(step, rewards)
        advantages_B = compared(rewards, self.sampling.num_each)
        return drawn.batch(advantages_B[:, None].expand(drawn.tokens_BT.shape))


def compared(rewards: Sequence[float], num_each: int) -> torch.Tensor:
    """Returns each reward less the mean of the others to its prompt; answers to a prompt stand side
    by side."""
    rewards_PE = torch.tensor(rewards, dtype=torch.float64).view(-1, num_each)
    others_PE = (rewards_PE.sum(1, keepdim=True) - rewards_PE) / (num_each - 1)
    return (rewards_PE - others_PE).flatten().float()

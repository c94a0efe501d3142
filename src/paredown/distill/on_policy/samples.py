"""Samples: texts that a model went on with, as it drew them. Shapes: B rows, T tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.distill.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Row b has a prompt of `prompt_lengths_B[b]` tokens and ends at `lengths_B[b]`; what lies
    after it is padding. `log_q_BT` and `log_p_BT` hold the logarithms of the student's and the
    teacher's probability of each token that was drawn, and 0 elsewhere."""

    tokens_BT: Tensor
    prompt_lengths_B: Tensor
    lengths_B: Tensor
    log_q_BT: Tensor
    log_p_BT: Tensor | None

    def drawn_places(self) -> Tensor:
        """Returns which tokens were drawn, [B, T]. They are found by their places, since padding
        may be any token."""
        places_T = torch.arange(self.tokens_BT.shape[1])
        after_BT = places_T >= self.prompt_lengths_B[:, None]
        return after_BT & (places_T < self.lengths_B[:, None])

    def answers(self) -> list[list[int]]:
        """Returns the drawn tokens of each row."""
        return [
            tokens_T[is_drawn_T].tolist()
            for tokens_T, is_drawn_T in zip(self.tokens_BT, self.drawn_places(), strict=True)
        ]

    def batch(self, advantages_BT: Tensor | None = None, weights_BT: Tensor | None = None) -> Batch:
        """Returns the rows for training; the drawn tokens are the targets. What is given has a
        value at the place of each token."""
        return Batch(
            inputs_BT=self.tokens_BT[:, :-1].contiguous(),
            targets_BT=self.tokens_BT[:, 1:].contiguous(),
            is_target_BT=self.drawn_places()[:, 1:].contiguous(),
            advantages_BT=None if advantages_BT is None else advantages_BT[:, 1:].contiguous(),
            weights_BT=None if weights_BT is None else weights_BT[:, 1:].contiguous(),
        )

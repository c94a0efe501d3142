"""Attention scores before the softmax (TinyBERT, arXiv 1909.10351, equation 7).

    mean over the heads h, and the keys k that the target's place sees, of (s_hk - a_hk)^2

s are the student's scores, a the teacher's. A place sees what both layers let it see of its own
text: in a decoder the tokens before it and itself. Where the teacher has more heads, a is their
mean: head h of H is compared with the teacher's heads in the same share of all, from h / H to
(h + 1) / H; a head that lies in two shares counts in both.

Shapes: B rows, T tokens, H heads, G teacher's heads, C columns of a head, N targets.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.distill.batch import Batch
from paredown.distill.features.trace import Trace
from paredown.distill.features.wide import wide
from paredown.models.decoder.attention import capped
from paredown.spec.attention import Attention


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Queries [B, H, T, C] and keys [B, K, T, C] of a layer."""

    attention: Attention
    q_BHTC: Tensor
    k_BKTC: Tensor

    @classmethod
    def of(cls, found: Trace) -> "Heads":
        """Returns the heads of a layer that was run."""
        return cls(attention=found.layer.spec.attention, q_BHTC=found.q_BHTC, k_BKTC=found.k_BKTC)

    def scores(self) -> Tensor:
        """Returns what the softmax would read, [B, H, T, T], unmasked."""
        k_BHTC = self.k_BKTC.repeat_interleave(self.attention.num_heads_per_group, dim=1)
        scores_BHTT = wide(self.q_BHTC @ k_BHTC.transpose(-1, -2)) * self.attention.score_scale
        soft_cap = self.attention.soft_cap
        return scores_BHTT if soft_cap is None else capped(scores_BHTT, soft_cap)


def attention_losses(own: Heads, taught: Heads, batch: Batch) -> Tensor:
    """Returns the loss of each target, [N]."""
    sees_BTT = visible(batch, own.attention) & visible(batch, taught.attention)
    taught_BHTT = shared_heads(taught.scores(), own.attention.num_heads)
    square_BHTT = (own.scores() - taught_BHTT).square()
    sums_BT = torch.where(sees_BTT[:, None], square_BHTT, 0.0).sum(-1).mean(1)
    losses_BT = sums_BT / sees_BTT.sum(-1)
    return losses_BT.expand(batch.inputs_BT.shape).flatten()[batch.places()]


def visible(batch: Batch, attention: Attention) -> Tensor:
    """Returns where a query (row) sees a key (column), [B, T, T], or [1, T, T] where all rows are
    alike."""
    num_tokens, device = batch.inputs_BT.shape[1], batch.inputs_BT.device
    if batch.texts_BT is None:
        sees_BTT = torch.ones(1, num_tokens, num_tokens, dtype=torch.bool, device=device)
    else:
        sees_BTT = batch.texts_BT[:, :, None] == batch.texts_BT[:, None, :]
    if attention.is_causal:
        sees_BTT = sees_BTT.tril()
    if attention.window is None:
        return sees_BTT
    places_T = torch.arange(num_tokens, device=device)
    return sees_BTT & ((places_T[:, None] - places_T).abs() < attention.window)


def shared_heads(scores_BGTT: Tensor, num_heads: int) -> Tensor:
    """Returns the means [B, H, T, T] of the teacher's heads that each of `num_heads` learns."""
    num_taught = scores_BGTT.shape[1]
    if num_heads == num_taught:
        return scores_BGTT
    means = [
        scores_BGTT[
            :, head * num_taught // num_heads : -(-(head + 1) * num_taught // num_heads)
        ].mean(1)
        for head in range(num_heads)
    ]
    return torch.stack(means, dim=1)

"""Attention that reads keys and values from pages.

The queries of one page of a text are computed together, with all pages that any of them may see.
The number of these pages, and so the shapes of the products, depends only on the page's number and
the layer; in cross-attention, on the length of the text that is read. Shapes: H query heads, K
key-value heads, G query heads per key-value head, S places of a page, N keys, C columns of a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.executors.torch.pages import Pages
from paredown.models.decoder.attention import capped
from paredown.spec.attention import Attention
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class PagedAttention:
    """The attention of one layer to its own text or, without sinks, to another one."""

    layer: int
    attention: Attention
    sinks: AttentionSinks | None

    def attend(
        self,
        pages: Pages,
        pages_P: Tensor,
        hidden_SN: Tensor,
        q_HSC: Tensor,
        met_HSC: Tensor | None,
        biases_HSN: Tensor | None,
    ) -> tuple[Tensor]:
        """Returns the attended heads [S, H * C] of a query page. `met_HSC` are its queries rotated
        for the sinks, if there are any, and `biases_HSN` the biases of relative positions."""
        k_KNC, v_KNC = pages.read(self.layer, pages_P)
        scores_KGSN = self._scores(q_HSC, k_KNC)
        if biases_HSN is not None:
            scores_KGSN = scores_KGSN + biases_HSN.reshape(scores_KGSN.shape)
        if met_HSC is not None:
            assert self.sinks is not None
            num_sinks = self.sinks.num_sink_tokens
            scores_KGSN[..., :num_sinks] = self._scores(met_HSC, k_KNC)[..., :num_sinks]
        if self.attention.soft_cap is not None:
            scores_KGSN = capped(scores_KGSN, self.attention.soft_cap)
        weights_KGSN = scores_KGSN.masked_fill(hidden_SN, -torch.inf).softmax(-1)
        mixed_KGSC = (weights_KGSN.flatten(1, 2) @ v_KNC).view(*weights_KGSN.shape[:3], -1)
        return (mixed_KGSC.permute(2, 0, 1, 3).flatten(1),)

    def _scores(self, q_HSC: Tensor, k_KNC: Tensor) -> Tensor:
        """Returns the scores [K, G, S, N]."""
        num_kv_heads, group = self.attention.num_kv_heads, self.attention.num_heads_per_group
        q_KMC = q_HSC.reshape(num_kv_heads, group * PAGE_SIZE, -1)
        scores_KMN = q_KMC @ k_KNC.transpose(1, 2) * self.attention.score_scale
        return scores_KMN.view(num_kv_heads, group, PAGE_SIZE, -1)

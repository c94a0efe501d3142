"""Attention that reads keys and values from pages.

The queries of one page of a text are computed together, with all pages that one of them may see:
how many these are follows from the page's number and the layer alone, and so do the shapes of the
products. Shapes: H query heads, K key-value heads, G query heads of one of these, S places of a
page, N keys, C columns of a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.executors.torch.pages import Pages
from paredown.executors.torch.tiles import QueryPage, held_place
from paredown.models.decoder.attention import capped
from paredown.spec.attention import Attention
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class PagedAttention:
    """Attention of one layer. With `sinks` they and their window take the place of its window."""

    layer: int
    attention: Attention
    sinks: AttentionSinks | None

    @property
    def _num_sink_pages(self) -> int:
        return 0 if self.sinks is None else -(-self.sinks.num_sink_tokens // PAGE_SIZE)

    def attend(
        self, pages: Pages, queries: QueryPage, q_SHC: Tensor, met_SHC: Tensor | None
    ) -> Tensor:
        """[S, H * C]. `met_SHC` are the queries turned as they meet the sinks."""
        seen = self._seen_pages(queries.page)
        k_KNC, v_KNC = pages.read(self.layer, self._held(queries, seen, q_SHC.device))
        keys_N = _positions(seen, q_SHC.device)
        scores_KGSN = self._scores(q_SHC, k_KNC)
        if met_SHC is not None:
            assert self.sinks is not None
            num_sinks = self.sinks.num_sink_tokens
            scores_KGSN[..., :num_sinks] = self._scores(met_SHC, k_KNC)[..., :num_sinks]
        if self.attention.soft_cap is not None:
            scores_KGSN = capped(scores_KGSN, self.attention.soft_cap)
        places_S = torch.arange(PAGE_SIZE, device=keys_N.device) + queries.page * PAGE_SIZE
        mask_SN = self._visible(places_S[:, None], keys_N)
        weights_KGSN = scores_KGSN.masked_fill(~mask_SN, -torch.inf).softmax(-1)
        mixed_KGSC = (weights_KGSN.flatten(1, 2) @ v_KNC).view(*weights_KGSN.shape[:3], -1)
        return mixed_KGSC.permute(2, 0, 1, 3).flatten(1)

    def _scores(self, q_SHC: Tensor, k_KNC: Tensor) -> Tensor:
        """[K, G, S, N]"""
        num_kv_heads, group = self.attention.num_kv_heads, self.attention.num_heads_per_group
        q_KMC = q_SHC.transpose(0, 1).reshape(num_kv_heads, group * PAGE_SIZE, -1)
        scores_KMN = q_KMC @ k_KNC.transpose(1, 2) * self.attention.score_scale
        return scores_KMN.view(num_kv_heads, group, PAGE_SIZE, -1)

    def _seen_pages(self, page: int) -> list[int]:
        """Pages of the text that some place of page number `page` may see, and that one."""
        window = self.attention.window if self.sinks is None else self.sinks.window
        first = 0 if window is None else max(0, page * PAGE_SIZE - window + 1) // PAGE_SIZE
        return [*range(min(self._num_sink_pages, first)), *range(first, page + 1)]

    def _held(self, queries: QueryPage, seen: list[int], device: torch.device) -> Tensor:
        """Pages in memory that hold them. The first one of the window may be gone: none of the
        queries that are asked for sees it, and the page before it stands in its place."""
        part = queries.sequence
        places = [max(0, held_place(part, page, self._num_sink_pages)) for page in seen]
        return torch.tensor([part.pages[place] for place in places], device=device)

    def _visible(self, query_S1: Tensor, keys_N: Tensor) -> Tensor:
        """[S, N], true where the place may see the key."""
        mask_SN = keys_N <= query_S1
        window = self.attention.window if self.sinks is None else self.sinks.window
        if window is None:
            return mask_SN
        near_SN = query_S1 - keys_N < window
        if self.sinks is not None:
            near_SN |= keys_N < self.sinks.num_sink_tokens
        return mask_SN & near_SN


def _positions(pages: list[int], device: torch.device) -> Tensor:
    """[N], of every place of these pages."""
    pages_N1 = torch.tensor(pages, device=device)[:, None]
    return (pages_N1 * PAGE_SIZE + torch.arange(PAGE_SIZE, device=device)).flatten()

"""Sight: which keys the queries of one page of a text see.

It depends only on the page's number, the window and the sinks, so layers with equal windows share
it. What cross-attention sees depends on the length of its text alone. Shapes: S places of a page, P
pages, N keys, H heads, R buckets of relative positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paredown.executors.protocol import SequenceSlice
from paredown.executors.torch.tiles import QueryPage, held_place
from paredown.models.decoder.relative import scores_between
from paredown.spec.attention import Attention
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class Sight:
    """`pages_P` are the pages with the keys, in the order of the text, and `keys_N` the positions
    of these. `hidden_SN` is true where a place may not see a key. `biases_HSN` is added to the
    scores; None adds nothing."""

    pages_P: Tensor
    keys_N: Tensor
    hidden_SN: Tensor
    biases_HSN: Tensor | None = None


def look(
    query_pages: Sequence[QueryPage],
    window: int | None,
    sinks: AttentionSinks | None,
    device: torch.device,
    *,
    is_padded: bool = False,
) -> list[Sight]:
    """Returns what each of these pages sees through a layer's window. With `sinks`, the sinks and
    their window replace it. With `is_padded`, hidden pages are added, so that few different
    numbers of pages occur."""
    window = window if sinks is None else sinks.window
    num_sink_pages = 0 if sinks is None else -(-sinks.num_sink_tokens // PAGE_SIZE)
    seen = [_seen_pages(one.page, window, num_sink_pages) for one in query_pages]
    # Copies them all to the device at once, since each copy waits.
    held = [_held(one, pages, num_sink_pages) for one, pages in zip(query_pages, seen, strict=True)]
    if is_padded:
        for one, pages, places in zip(query_pages, seen, held, strict=True):
            num_missing = padded(len(pages)) - len(pages)
            pages += num_missing * [one.page + 1]
            places += num_missing * places[-1:]
    numbers = torch.tensor([number for pages in (*held, *seen) for number in pages], device=device)
    parts = torch.split(numbers, [len(pages) for pages in (*held, *seen)])
    return [
        _sight(one.page, held_P, _positions(seen_P), window, sinks)
        for one, held_P, seen_P in zip(
            query_pages, parts[: len(seen)], parts[len(seen) :], strict=True
        )
    ]


def look_across(
    query_pages: Sequence[QueryPage], device: torch.device, *, is_padded: bool = False
) -> list[Sight]:
    """Returns what each of these pages sees of the text that its sequence reads across: all of it.
    `is_padded` as in `look`."""
    slices = {id(one.sequence): one.sequence for one in query_pages}
    sights = {key: _across(part, device, is_padded) for key, part in slices.items()}
    return [sights[id(one.sequence)] for one in query_pages]


def with_relative(
    sights: Sequence[Sight],
    query_pages: Sequence[QueryPage],
    attention: Attention,
    biases_RH: Tensor,
) -> list[Sight]:
    """Returns the sights with the biases of relative positions, as `attention` has them. Pages of
    one number share theirs."""
    assert attention.relative is not None
    places_S = torch.arange(PAGE_SIZE, device=biases_RH.device)
    known: dict[int, Tensor] = {}
    for one, sight in zip(query_pages, sights, strict=True):
        if one.page not in known:
            known[one.page] = scores_between(
                attention.relative,
                biases_RH,
                places_S + one.page * PAGE_SIZE,
                sight.keys_N,
                is_causal=attention.is_causal,
            )
    return [
        replace(sight, biases_HSN=known[one.page])
        for one, sight in zip(query_pages, sights, strict=True)
    ]


def padded(num_pages: int) -> int:
    """Returns the next of 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""
    step = 1 << max(0, num_pages.bit_length() - 2)
    return -(-num_pages // step) * step


def _seen_pages(page: int, window: int | None, num_sink_pages: int) -> list[int]:
    """Returns the pages of the text that some place of page number `page` may see, itself
    included."""
    first = 0 if window is None else max(0, page * PAGE_SIZE - window + 1) // PAGE_SIZE
    return [*range(min(num_sink_pages, first)), *range(first, page + 1)]


def _held(queries: QueryPage, seen: list[int], num_sink_pages: int) -> list[int]:
    """Returns where these pages lie in memory. The window's first page may have been released:
    none of the queries that are asked for sees it, so the page before it replaces it."""
    part = queries.sequence
    places = [max(0, held_place(part, page, num_sink_pages)) for page in seen]
    return [part.pages[place] for place in places]


def _across(part: SequenceSlice, device: torch.device, is_padded: bool) -> Sight:
    num_pages = -(-part.num_cross_tokens // PAGE_SIZE)
    pages = list(part.cross_pages[:num_pages])
    if is_padded:
        pages += (padded(num_pages) - num_pages) * pages[-1:]
    keys_N = torch.arange(len(pages) * PAGE_SIZE, device=device)
    return Sight(
        pages_P=torch.tensor(pages, device=device),
        keys_N=keys_N,
        hidden_SN=(keys_N >= part.num_cross_tokens).expand(PAGE_SIZE, -1),
    )


def _positions(pages_P: Tensor) -> Tensor:
    """Returns the positions [N] in these pages of a text."""
    places_S = torch.arange(PAGE_SIZE, device=pages_P.device)
    return (pages_P[:, None] * PAGE_SIZE + places_S).flatten()


def _sight(
    page: int, held_P: Tensor, keys_N: Tensor, window: int | None, sinks: AttentionSinks | None
) -> Sight:
    queries_S1 = (torch.arange(PAGE_SIZE, device=keys_N.device) + page * PAGE_SIZE)[:, None]
    seen_SN = keys_N <= queries_S1
    if window is not None:
        near_SN = queries_S1 - keys_N < window
        if sinks is not None:
            near_SN |= keys_N < sinks.num_sink_tokens
        seen_SN &= near_SN
    return Sight(pages_P=held_P, keys_N=keys_N, hidden_SN=~seen_SN)

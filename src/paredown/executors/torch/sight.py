"""Sight: which keys the queries of one page of a text see.

It depends only on the page's number, the window and the sinks, so layers with equal windows share
it. Shapes: S places of a page, P pages, N keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.executors.torch.tiles import QueryPage, held_place
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class Sight:
    """`pages_P` are the pages with the keys, in the order of the text. `hidden_SN` is true where a
    place may not see a key."""

    pages_P: Tensor
    hidden_SN: Tensor


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
        Sight(pages_P=held_P, hidden_SN=~_visible(one.page, seen_P, window, sinks))
        for one, held_P, seen_P in zip(
            query_pages, parts[: len(seen)], parts[len(seen) :], strict=True
        )
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


def _visible(page: int, seen_P: Tensor, window: int | None, sinks: AttentionSinks | None) -> Tensor:
    """Returns a mask [S, N] of the keys that each place sees."""
    places_S = torch.arange(PAGE_SIZE, device=seen_P.device)
    keys_N = (seen_P[:, None] * PAGE_SIZE + places_S).flatten()
    queries_S1 = (places_S + page * PAGE_SIZE)[:, None]
    mask_SN = keys_N <= queries_S1
    if window is None:
        return mask_SN
    near_SN = queries_S1 - keys_N < window
    if sinks is not None:
        near_SN |= keys_N < sinks.num_sink_tokens
    return mask_SN & near_SN

"""Tiles: the tokens of a step, laid out so that each is computed in one and the same way.

A library's matrix product sums in an order that depends on how many rows it is given. So rows are
computed in tiles of PAGE_SIZE rows, always full, and a token's place in its tile is its place in
its page: what shares a tile with it, other tokens or nothing, does not change its bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.executors.protocol import SequenceSlice
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class QueryPage:
    """The tokens of a slice that stand in one page of their sequence: page number `page` of the
    text. `rows` are their rows in the tiles, one tile after the other, and `places` their places in
    the page."""

    sequence: SequenceSlice
    page: int
    places: slice
    rows: Tensor


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """T tiles of S rows, R of which hold a token. Where there is none stands the first token of the
    vocabulary at the first position, and nobody asks what becomes of it.

    `token_ids_TS`, `positions_TS`, and `lengths_TS` of the texts that they stand in
    `rows_R`      where the tokens are, tile after tile
    `pages_R`     the page that holds a token's keys and values, `places_R` its place there
    `wanted`      the rows whose logits are asked for, in order
    """

    token_ids_TS: Tensor
    positions_TS: Tensor
    lengths_TS: Tensor
    rows_R: Tensor
    pages_R: Tensor
    places_R: Tensor
    wanted: list[int]
    query_pages: list[QueryPage]

    @classmethod
    def of(cls, slices: Sequence[SequenceSlice], num_sink_pages: int, device: str) -> "Tiles":
        """The tiles of these slices, which are right (slice_rules.py)."""
        num_at_place = [0] * PAGE_SIZE
        rows, pages, wanted = list[int](), list[int](), list[int]()
        query_pages = list[QueryPage]()
        for part in slices:
            first_row, end = len(rows), part.start + len(part.token_ids)
            for position in range(part.start, end):
                page, place = divmod(position, PAGE_SIZE)
                rows.append(num_at_place[place] * PAGE_SIZE + place)
                num_at_place[place] += 1
                pages.append(part.pages[held_place(part, page, num_sink_pages)])
            own = rows[first_row:]
            wanted += own[len(own) - part.num_logits :]
            query_pages += _query_pages(part, own, device)
        token_ids = [token_id for part in slices for token_id in part.token_ids]
        positions = [part.start + i for part in slices for i in range(len(part.token_ids))]
        rows_R = torch.tensor(rows, device=device)
        lengths = [part.text_length for part in slices for _ in part.token_ids]
        tiled = torch.zeros(3, max(num_at_place, default=0) * PAGE_SIZE, dtype=torch.int64)
        tiled[:, torch.tensor(rows)] = torch.tensor([token_ids, positions, lengths])
        token_ids_TS, positions_TS, lengths_TS = tiled.view(3, -1, PAGE_SIZE).to(device)
        return cls(
            token_ids_TS=token_ids_TS,
            positions_TS=positions_TS,
            lengths_TS=lengths_TS,
            rows_R=rows_R,
            pages_R=torch.tensor(pages, device=device),
            places_R=rows_R % PAGE_SIZE,
            wanted=wanted,
            query_pages=query_pages,
        )


def held_place(part: SequenceSlice, page: int, num_sink_pages: int) -> int:
    """Where page number `page` of the text is among those that the sequence holds."""
    return page if page < num_sink_pages else page - part.num_released_pages


def _query_pages(part: SequenceSlice, rows: list[int], device: str) -> list[QueryPage]:
    end, found = part.start + len(part.token_ids), list[QueryPage]()
    for page in range(part.start // PAGE_SIZE, -(-end // PAGE_SIZE)):
        first = max(part.start, page * PAGE_SIZE)
        last = min(end, (page + 1) * PAGE_SIZE)
        found.append(
            QueryPage(
                sequence=part,
                page=page,
                places=slice(first - page * PAGE_SIZE, last - page * PAGE_SIZE),
                rows=torch.tensor(rows[first - part.start : last - part.start], device=device),
            )
        )
    return found

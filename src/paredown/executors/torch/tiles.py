"""Tiles: lay out the tokens of a step so that each is always computed in the same way.

A library's matrix product sums in an order that depends on its number of rows. Rows are therefore
computed in tiles with a fixed number of rows: a token's bits do not depend on what shares its
tile. On a CPU a function may treat the end of an array differently, so a token's place in its tile
follows from its position. On a GPU all rows of a call run the same operations, and tokens are
packed one after another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.executors.protocol import SequenceSlice
from paredown.spec.device import Device
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class TileForm:
    """The rows of a tile, a multiple of PAGE_SIZE, and whether a token's place among them follows
    from its position."""

    num_rows: int
    keeps_places: bool

    def rows_of(self, positions: Sequence[int]) -> list[int]:
        """Returns the rows of tokens at these positions, counted through all tiles."""
        if not self.keeps_places:
            return list(range(len(positions)))
        num_at_place, rows = [0] * self.num_rows, list[int]()
        for position in positions:
            place = position % self.num_rows
            rows.append(num_at_place[place] * self.num_rows + place)
            num_at_place[place] += 1
        return rows


# With fewer rows a GPU is hardly faster.
TILE_FORMS: dict[Device, TileForm] = {
    "cpu": TileForm(num_rows=PAGE_SIZE, keeps_places=True),
    "cuda": TileForm(num_rows=64, keeps_places=False),
}


@dataclass(frozen=True, kw_only=True)
class QueryPage:
    """The tokens of a slice in page number `page` of their text. `rows_S` are their rows in the
    tiles, each at its place in the page. A place without a token has a row of the first tile,
    whose result is unused."""

    sequence: SequenceSlice
    page: int
    rows_S: Tensor


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """T tiles of S rows, of which R hold a token, and Q query pages. Rows without a token hold the
    vocabulary's first token at the first position; their results are unused.

    `token_ids_TS`, `positions_TS`, and `lengths_TS` of the texts that the tokens belong to
    `rows_R`      where the tokens are, tile after tile
    `pages_R`     the page that holds a token's keys and values, `places_R` its place there
    `queries_TS`  where a row's token is among the rows of all query pages
    `wanted`      the rows whose logits are asked for, in order
    """

    token_ids_TS: Tensor
    positions_TS: Tensor
    lengths_TS: Tensor
    rows_R: Tensor
    pages_R: Tensor
    places_R: Tensor
    queries_TS: Tensor
    wanted: list[int]
    query_pages: list[QueryPage]

    @classmethod
    def of(cls, slices: Sequence[SequenceSlice], num_sink_pages: int, device: Device) -> "Tiles":
        """Lays out these slices, which must have passed slice_rules.py."""
        form = TILE_FORMS[device]
        positions = [part.start + i for part in slices for i in range(len(part.token_ids))]
        rows = form.rows_of(positions)
        pages, queries, wanted = list[int](), list[int](), list[int]()
        owners, rows_QS = list[tuple[SequenceSlice, int]](), list[list[int]]()
        for part in slices:
            for position in range(part.start, part.start + len(part.token_ids)):
                page, place = divmod(position, PAGE_SIZE)
                if position == part.start or place == 0:
                    owners.append((part, page))
                    rows_QS.append(list(range(PAGE_SIZE)))
                rows_QS[-1][place] = rows[len(pages)]
                queries.append((len(rows_QS) - 1) * PAGE_SIZE + place)
                pages.append(part.pages[held_place(part, page, num_sink_pages)])
            wanted += rows[len(pages) - part.num_logits : len(pages)]
        token_ids = [token_id for part in slices for token_id in part.token_ids]
        lengths = [part.text_length for part in slices for _ in part.token_ids]
        num_tiles = max(rows, default=-1) // form.num_rows + 1
        tiled = torch.zeros(4, num_tiles * form.num_rows, dtype=torch.int64)
        tiled[:, torch.tensor(rows)] = torch.tensor([token_ids, positions, lengths, queries])
        token_ids_TS, positions_TS, lengths_TS, queries_TS = tiled.view(4, num_tiles, -1).to(device)
        places = [position % PAGE_SIZE for position in positions]
        rows_R, pages_R, places_R = torch.tensor([rows, pages, places]).to(device)
        pages_of_queries = torch.tensor(rows_QS).to(device)
        return cls(
            token_ids_TS=token_ids_TS,
            positions_TS=positions_TS,
            lengths_TS=lengths_TS,
            rows_R=rows_R,
            pages_R=pages_R,
            places_R=places_R,
            queries_TS=queries_TS,
            wanted=wanted,
            query_pages=[
                QueryPage(sequence=part, page=page, rows_S=rows_S)
                for (part, page), rows_S in zip(owners, pages_of_queries, strict=True)
            ],
        )


def held_place(part: SequenceSlice, page: int, num_sink_pages: int) -> int:
    """Returns the index of the text's page number `page` among the sequence's pages."""
    return page if page < num_sink_pages else page - part.num_released_pages

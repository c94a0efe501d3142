"""PagedDecoder: the PyTorch decoder's layers over paged keys and values.

A tile is a tensor of its own. One that began inside of another tensor could lie at an address that
a library takes as a reason for another order of sums.

Shapes: T tiles, S rows of a tile, D hidden size, H query heads, K key-value heads, C columns of a
head, O columns of all query heads, V vocabulary, L rows whose logits are asked for.
"""

import torch
from torch import Tensor

from paredown.executors.torch.paged_attention import PagedAttention
from paredown.executors.torch.pages import Pages
from paredown.executors.torch.sight import Sight, look
from paredown.executors.torch.tiles import Tiles
from paredown.models.decoder.attention import query_growth
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.rotary import RotationTable, rotate, rotation_at
from paredown.spec.attention import Attention
from paredown.spec.context import Context

# How a tile's queries and keys turn, and its queries as they meet the sinks; and what the queries
# are multiplied with, [S, 1].
_Turns = tuple[RotationTable | None, RotationTable | None, Tensor | None]
# What a layer is told of the step: the turns of each tile, and the sight of each query page.
_View = tuple[list[_Turns], list[Sight]]


class PagedDecoder:
    """Computes steps on the weights of `decoder`, which others may use, too."""

    def __init__(self, decoder: Decoder, context: Context, pages: Pages) -> None:
        self._decoder = decoder
        self._context = context
        self._pages = pages

    def logits(self, tiles: Tiles) -> Tensor:
        """[L, V]. Keys and values of all tokens are in the pages then."""
        tiles_1SD = [
            self._decoder.embed(token_ids_S[None], positions_S)
            for token_ids_S, positions_S in zip(tiles.token_ids_TS, tiles.positions_TS, strict=True)
        ]
        views: dict[Attention, _View] = {}
        sights: dict[int | None, list[Sight]] = {}
        for attention in {layer.attention for layer in self._context.spec.layers}:
            window = attention.window
            if window not in sights:
                device = tiles.rows_R.device
                sights[window] = look(tiles.query_pages, window, self._context.sinks, device)
            views[attention] = self._turns(attention, tiles), sights[window]
        for index, layer in enumerate(self._decoder.layers):
            assert isinstance(layer, Layer)
            tiles_1SD = self._run_layer(index, layer, tiles_1SD, tiles, views[layer.spec.attention])
        return self._predict(tiles_1SD, tiles.wanted)

    def _run_layer(
        self, index: int, layer: Layer, tiles_1SD: list[Tensor], tiles: Tiles, view: _View
    ) -> list[Tensor]:
        queries, met, keys, values = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
        turns, sights = view
        for x_1SD, (table, sink_table, growth_S1) in zip(tiles_1SD, turns, strict=True):
            q_BHSC, k_BKSC, v_BKSC = layer.all_heads(layer.normed("attention_norm", x_1SD))
            if growth_S1 is not None:
                q_BHSC = q_BHSC * growth_S1
            queries.append(_rows(q_BHSC, table))
            keys.append(_rows(k_BKSC, table))
            values.append(_rows(v_BKSC, None))
            if sink_table is not None:
                met.append(_rows(q_BHSC, sink_table))
        rows_R, pages_R, places_R = tiles.rows_R, tiles.pages_R, tiles.places_R
        k_RKC, v_RKC = torch.cat(keys)[rows_R], torch.cat(values)[rows_R]
        self._pages.write(index, pages_R, places_R, k_RKC, v_RKC)
        met_all = torch.cat(met) if met else None
        mixed_YO = self._attend(index, tiles, sights, torch.cat(queries), met_all)
        return [
            layer.add_mlp(layer.add_attention(x_1SD, mixed_YO[queries_S][None]), x_1SD)
            for x_1SD, queries_S in zip(tiles_1SD, tiles.queries_TS, strict=True)
        ]

    def _attend(
        self,
        index: int,
        tiles: Tiles,
        sights: list[Sight],
        q_XHC: Tensor,
        met_XHC: Tensor | None,
    ) -> Tensor:
        """[Y, O]. X: rows of all tiles, Y: rows of all query pages."""
        attention = self._context.spec.layers[index].attention
        paged = PagedAttention(layer=index, attention=attention, sinks=self._context.sinks)
        mixed = list[Tensor]()
        for queries, sight in zip(tiles.query_pages, sights, strict=True):
            met_SHC = None if met_XHC is None else met_XHC[queries.rows_S]
            mixed.append(paged.attend(self._pages, sight, q_XHC[queries.rows_S], met_SHC))
        return torch.cat(mixed)

    def _turns(self, attention: Attention, tiles: Tiles) -> list[_Turns]:
        """For each tile."""
        found, temperature = list[_Turns](), attention.temperature
        for positions_S, lengths_S in zip(tiles.positions_TS, tiles.lengths_TS, strict=True):
            growth_S1 = None if temperature is None else query_growth(temperature, positions_S)
            found.append((*self._tables(attention, positions_S, lengths_S), growth_S1))
        return found

    def _tables(
        self, attention: Attention, positions_S: Tensor, lengths_S: Tensor
    ) -> tuple[RotationTable | None, RotationTable | None]:
        """Angles in the precision that the decoder has them in."""
        rotary, sinks = attention.rotary, self._context.sinks
        if rotary is None:
            return None, None
        dtype = torch.float32 if sinks is None else torch.float64
        table = rotation_at(rotary, attention.head_dim, positions_S.to(dtype), lengths_S)
        if sinks is None:
            return table, None
        cached_S = positions_S.clamp(max=sinks.num_kept_tokens - 1).to(dtype)
        return table, rotation_at(rotary, attention.head_dim, cached_S, lengths_S)

    def _predict(self, tiles_1SD: list[Tensor], wanted: list[int]) -> Tensor:
        """The logits of the tiles that hold a row whose logits are asked for."""
        num_rows = tiles_1SD[0].shape[1]
        logits_LV = tiles_1SD[0].new_empty(len(wanted), self._context.spec.vocab_size)
        for tile in sorted({row // num_rows for row in wanted}):
            logits_SV = self._decoder.predict(tiles_1SD[tile])[0]
            places = [i for i, row in enumerate(wanted) if row // num_rows == tile]
            logits_LV[places] = logits_SV[[wanted[i] % num_rows for i in places]]
        return logits_LV


def _rows(x_BHSC: Tensor, table: RotationTable | None) -> Tensor:
    """[S, H, C], turned as the table says."""
    turned_BHSC = x_BHSC if table is None else rotate(x_BHSC, table)
    return turned_BHSC[0].transpose(0, 1)

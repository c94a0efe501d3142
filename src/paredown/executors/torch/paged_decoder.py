"""PagedDecoder: the PyTorch decoder's layers over paged keys and values.

Shapes: T tiles, S rows of a tile, D hidden size, H query heads, K key-value heads, C columns of a
head, O columns of all query heads, V vocabulary, L rows whose logits are asked for.
"""

import torch
from torch import Tensor

from paredown.executors.torch.paged_attention import PagedAttention
from paredown.executors.torch.pages import Pages
from paredown.executors.torch.tiles import Tiles
from paredown.models.decoder.attention import query_growth
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.rotary import RotationTable, rotate, rotation_at
from paredown.spec.attention import Attention
from paredown.spec.context import Context
from paredown.spec.kv import PAGE_SIZE

# How a tile's queries and keys turn, and its queries as they meet the sinks; and what the queries
# are multiplied with, [S, 1].
_Turns = tuple[RotationTable | None, RotationTable | None, Tensor | None]


class PagedDecoder:
    """Computes steps on the weights of `decoder`, which others may use, too."""

    def __init__(self, decoder: Decoder, context: Context, pages: Pages) -> None:
        self._decoder = decoder
        self._context = context
        self._pages = pages

    def logits(self, tiles: Tiles) -> Tensor:
        """[L, V]. Keys and values of all tokens are in the pages then."""
        x_TSD = torch.cat(
            [
                self._decoder.embed(token_ids_S[None], positions_S)
                for token_ids_S, positions_S in zip(
                    tiles.token_ids_TS, tiles.positions_TS, strict=True
                )
            ]
        )
        turns: dict[Attention, list[_Turns]] = {}
        for attention in {layer.attention for layer in self._context.spec.layers}:
            turns[attention] = self._turns(attention, tiles)
        for index, layer in enumerate(self._decoder.layers):
            assert isinstance(layer, Layer)
            x_TSD = self._run_layer(index, layer, x_TSD, tiles, turns[layer.spec.attention])
        return self._predict(x_TSD, tiles.wanted)

    def _run_layer(
        self, index: int, layer: Layer, x_TSD: Tensor, tiles: Tiles, turns: list[_Turns]
    ) -> Tensor:
        queries, met, keys, values = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
        for x_SD, (table, sink_table, growth_S1) in zip(x_TSD, turns, strict=True):
            q_BHSC, k_BKSC, v_BKSC = layer.all_heads(layer.normed("attention_norm", x_SD[None]))
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
        mixed_TSO = self._attend(index, tiles, torch.cat(queries), met_all)
        return torch.cat(
            [
                layer.add_mlp(layer.add_attention(x_SD[None], mixed_SO[None]), x_SD[None])
                for x_SD, mixed_SO in zip(x_TSD, mixed_TSO, strict=True)
            ]
        )

    def _attend(self, index: int, tiles: Tiles, q_XHC: Tensor, met_XHC: Tensor | None) -> Tensor:
        """[T, S, O], zeros where there is no token; X: rows of all tiles."""
        attention = self._context.spec.layers[index].attention
        paged = PagedAttention(layer=index, attention=attention, sinks=self._context.sinks)
        mixed_XO = q_XHC.new_zeros(len(q_XHC), attention.query_size)
        for queries in tiles.query_pages:
            q_SHC = q_XHC.new_zeros(PAGE_SIZE, *q_XHC.shape[1:])
            q_SHC[queries.places] = q_XHC[queries.rows]
            met_SHC = None
            if met_XHC is not None:
                met_SHC = torch.zeros_like(q_SHC)
                met_SHC[queries.places] = met_XHC[queries.rows]
            mixed_SO = paged.attend(self._pages, queries, q_SHC, met_SHC)
            mixed_XO[queries.rows] = mixed_SO[queries.places]
        return mixed_XO.view(-1, PAGE_SIZE, attention.query_size)

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

    def _predict(self, x_TSD: Tensor, wanted: list[int]) -> Tensor:
        """The logits of the tiles that hold a row whose logits are asked for."""
        used = sorted({row // PAGE_SIZE for row in wanted})
        vocab_size = self._context.spec.vocab_size
        logits_LV = x_TSD.new_empty(len(wanted), vocab_size)
        for tile in used:
            logits_SV = self._decoder.predict(x_TSD[tile : tile + 1])[0]
            places = [i for i, row in enumerate(wanted) if row // PAGE_SIZE == tile]
            logits_LV[places] = logits_SV[[wanted[i] % PAGE_SIZE for i in places]]
        return logits_LV


def _rows(x_BHSC: Tensor, table: RotationTable | None) -> Tensor:
    """[S, H, C], turned as the table says."""
    turned_BHSC = x_BHSC if table is None else rotate(x_BHSC, table)
    return turned_BHSC[0].transpose(0, 1)

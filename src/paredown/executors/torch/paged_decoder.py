"""PagedDecoder: the PyTorch decoder's layers over paged keys and values.

Each tile is a tensor of its own. A view into another tensor could start at an address for which a
library sums in another order.

Shapes: T tiles, S rows of a tile, D hidden size, H query heads, K key-value heads, C columns of a
head, O columns of all query heads, V vocabulary, L rows whose logits are asked for.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import torch
from torch import Tensor

from paredown.executors.torch.paged_attention import PagedAttention
from paredown.executors.torch.pages import Pages
from paredown.executors.torch.sight import Sight, look, look_across, with_relative
from paredown.executors.torch.tile_graphs import Compute, Inputs, TileGraphs, run_plainly
from paredown.executors.torch.tiles import Tiles
from paredown.models.decoder.attention import query_growth
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.rotary import RotationTable, rotate, rotation_at
from paredown.spec.attention import Attention
from paredown.spec.context import Context
from paredown.spec.experts import Experts

# The rotations of a tile's queries and keys, those of its queries for the sinks (cosines and sines
# each), and the factor of the queries [S, 1].
_Turns = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]
_NO_TABLE = (None, None)
# A layer's view of the step: the rotations of each tile, and the sight of each query page.
_View = tuple[list[_Turns], list[Sight]]
# Has the signature of `TileGraphs.run`.
_Run = Callable[[Hashable, Compute, Inputs], tuple[Tensor, ...]]


class PagedDecoder:
    """Computes steps with the weights of `decoder`, which others may use too. `graphs`, on a GPU,
    launches the kernels of a tile together."""

    def __init__(
        self, decoder: Decoder, context: Context, pages: Pages, graphs: TileGraphs | None = None
    ) -> None:
        self._decoder = decoder
        self._context = context
        self._pages = pages
        self._run: _Run = run_plainly if graphs is None else graphs.run
        # Each number of visible pages has its own graph, so there must be few such numbers.
        self._is_padded = graphs is not None

    def logits(self, tiles: Tiles) -> Tensor:
        """Returns the logits [L, V] and writes the keys and values of all tokens to the pages."""
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
                sights[window] = look(
                    tiles.query_pages,
                    window,
                    self._context.sinks,
                    device,
                    is_padded=self._is_padded,
                )
            own = self._with_biases(attention, sights[window], tiles)
            views[attention] = self._turns(attention, tiles), own
        across = list[Sight]()
        if self._context.spec.encoder is not None:
            device = tiles.rows_R.device
            across = look_across(tiles.query_pages, device, is_padded=self._is_padded)
        for index, layer in enumerate(self._decoder.layers):
            assert isinstance(layer, Layer)
            view = views[layer.spec.attention]
            tiles_1SD = self._run_layer(index, layer, tiles_1SD, tiles, view, across)
        return self._predict(tiles_1SD, tiles.wanted)

    def _with_biases(self, attention: Attention, sights: list[Sight], tiles: Tiles) -> list[Sight]:
        if attention.relative is None:
            return sights
        biases_RH = self._decoder.layers[0].relative_biases
        assert isinstance(biases_RH, Tensor)
        return with_relative(sights, tiles.query_pages, attention, biases_RH)

    def _run_layer(
        self,
        index: int,
        layer: Layer,
        tiles_1SD: list[Tensor],
        tiles: Tiles,
        view: _View,
        across: list[Sight],
    ) -> list[Tensor]:
        turns, sights = view
        heads = [
            self._run(("heads", index), partial(_heads, layer), (x_1SD, *turn))
            for x_1SD, turn in zip(tiles_1SD, turns, strict=True)
        ]
        queries, keys_values, *met = zip(*heads, strict=True)
        kv_2KRC = _joined(keys_values, 2).index_select(2, tiles.rows_R)
        self._pages.write(index, tiles.pages_R, tiles.places_R, kv_2KRC)
        met_HXC = _joined(met[0], 1) if met else None
        own = PagedAttention(layer=index, attention=layer.spec.attention, sinks=self._context.sinks)
        mixed_YO = self._attend(own, tiles, sights, _joined(queries, 1), met_HXC)
        inputs = _by_tile(tiles_1SD, mixed_YO, tiles)
        rest: Callable[[Layer, Tensor, Tensor], tuple[Tensor, ...]] = _rest
        if layer.spec.cross is not None:
            inputs, rest = self._cross(index, layer, inputs, tiles, across), _rest_after_cross
        run = run_plainly if isinstance(layer.spec.mlp, Experts) else self._run
        return [run(("rest", index), partial(rest, layer), one)[0] for one in inputs]

    def _cross(
        self,
        index: int,
        layer: Layer,
        inputs: list[tuple[Tensor, Tensor]],
        tiles: Tiles,
        across: list[Sight],
    ) -> list[tuple[Tensor, Tensor]]:
        """Returns the sums before cross-attention, and its attended heads, of each tile. `inputs`
        are the layer's inputs and the attended heads of its own text."""
        run = partial(self._run, ("cross", index), partial(_cross_queries, layer))
        sums, queries = zip(*map(run, inputs), strict=True)
        assert layer.spec.cross is not None
        paged = PagedAttention(layer=index, attention=layer.spec.cross, sinks=None)
        mixed_YO = self._attend(paged, tiles, across, _joined(queries, 1), None)
        return _by_tile(sums, mixed_YO, tiles)

    def _attend(
        self,
        paged: PagedAttention,
        tiles: Tiles,
        sights: list[Sight],
        q_HXC: Tensor,
        met_HXC: Tensor | None,
    ) -> Tensor:
        """Returns the attended heads [Y, O]. X: rows of all tiles, Y: rows of all query pages."""
        mixed = list[Tensor]()
        for queries, sight in zip(tiles.query_pages, sights, strict=True):
            q_HSC = q_HXC.index_select(1, queries.rows_S)
            met_HSC = None if met_HXC is None else met_HXC.index_select(1, queries.rows_S)
            key = (paged, len(sight.pages_P))
            inputs = (sight.pages_P, sight.hidden_SN, q_HSC, met_HSC, sight.biases_HSN)
            mixed += self._run(key, partial(paged.attend, self._pages), inputs)
        return _joined(mixed, 0)

    def _turns(self, attention: Attention, tiles: Tiles) -> list[_Turns]:
        """Returns the rotations of each tile."""
        found, temperature = list[_Turns](), attention.temperature
        for positions_S, lengths_S in zip(tiles.positions_TS, tiles.lengths_TS, strict=True):
            growth_S1 = None if temperature is None else query_growth(temperature, positions_S)
            table, sink_table = self._tables(attention, positions_S, lengths_S)
            found.append((*(table or _NO_TABLE), *(sink_table or _NO_TABLE), growth_S1))
        return found

    def _tables(
        self, attention: Attention, positions_S: Tensor, lengths_S: Tensor
    ) -> tuple[RotationTable | None, RotationTable | None]:
        """Returns the rotation tables, with angles in the decoder's precision."""
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
        """Computes the logits of the tiles that hold a row whose logits are asked for."""
        num_rows = tiles_1SD[0].shape[1]
        logits_LV = tiles_1SD[0].new_empty(len(wanted), self._context.spec.vocab_size)
        for tile in sorted({row // num_rows for row in wanted}):
            logits_SV = self._decoder.predict(tiles_1SD[tile])[0]
            places = [i for i, row in enumerate(wanted) if row // num_rows == tile]
            logits_LV[places] = logits_SV[[wanted[i] % num_rows for i in places]]
        return logits_LV


def _heads(
    layer: Layer,
    x_1SD: Tensor,
    cos_SR: Tensor | None,
    sin_SR: Tensor | None,
    sink_cos_SR: Tensor | None,
    sink_sin_SR: Tensor | None,
    growth_S1: Tensor | None,
) -> tuple[Tensor, ...]:
    """Returns queries [H, S, C], keys and values [2, K, S, C], and with sinks the queries rotated
    for these."""
    q_1HSC, k_1KSC, v_1KSC = layer.all_heads(layer.normed("attention_norm", x_1SD))
    if growth_S1 is not None:
        q_1HSC = q_1HSC * growth_S1
    if cos_SR is None or sin_SR is None:
        return q_1HSC[0].contiguous(), torch.cat([k_1KSC, v_1KSC])
    kv_2KSC = torch.cat([rotate(k_1KSC, (cos_SR, sin_SR)), v_1KSC])
    turned_HSC = rotate(q_1HSC, (cos_SR, sin_SR))[0]
    if sink_cos_SR is None or sink_sin_SR is None:
        return turned_HSC, kv_2KSC
    return turned_HSC, kv_2KSC, rotate(q_1HSC, (sink_cos_SR, sink_sin_SR))[0]


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def _by_tile(
    tiles_1SD: Sequence[Tensor], mixed_YO: Tensor, tiles: Tiles
) -> list[tuple[Tensor, Tensor]]:
    """Returns each tile with its attended heads [1, S, O]."""
    return [
        (x_1SD, mixed_YO[queries_S][None])
        for x_1SD, queries_S in zip(tiles_1SD, tiles.queries_TS, strict=True)
    ]


def _rest(layer: Layer, x_1SD: Tensor, mixed_1SO: Tensor) -> tuple[Tensor, ...]:
    """Returns the layer's output from its input and its attended heads."""
    return (layer.add_mlp(layer.add_attention(x_1SD, mixed_1SO), x_1SD),)


def _cross_queries(layer: Layer, x_1SD: Tensor, mixed_1SO: Tensor) -> tuple[Tensor, ...]:
    """Returns the sum after attention, and the queries [H, S, C] of cross-attention."""
    sum_1SD = layer.add_attention(x_1SD, mixed_1SO)
    return sum_1SD, layer.cross_queries(sum_1SD)[0].contiguous()


def _rest_after_cross(layer: Layer, sum_1SD: Tensor, mixed_1SO: Tensor) -> tuple[Tensor, ...]:
    """Returns the layer's output from the sum before cross-attention and its attended heads."""
    return (layer.add_mlp(layer.add_mixed_cross(sum_1SD, mixed_1SO)),)

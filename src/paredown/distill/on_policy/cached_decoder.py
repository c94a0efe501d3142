"""CachedDecoder: runs a decoder that is being trained over texts that grow token by token.

The serving executors hold packed copies of weights, which a training step would make stale. This
one reads the decoder's own weights and keeps keys and values of what it has read.

Shapes: B rows, T tokens of a call, S places of the cache, D hidden size, H query heads, K key-value
heads, G query heads of a group, C columns of a head, V vocabulary.
"""

import torch
from torch import Tensor

from paredown.errors import UnsupportedError
from paredown.models.decoder.attention import capped, query_growth
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.rotary import RotationTable, rotate, rotation_at
from paredown.spec.attention import Attention

# A layer's rotation table [B, 1, T, C], if it has one, and what its tokens see, [B, T, S].
_View = tuple[RotationTable | None, Tensor]


class CachedDecoder:
    """Texts of up to `num_places` tokens, a row each. Call it without gradients. Raises
    UnsupportedError for a decoder whose tokens see later ones."""

    def __init__(self, decoder: Decoder, num_places: int) -> None:
        assert decoder.sinks is None
        if not all(layer.attention.is_causal for layer in decoder.spec.layers):
            raise UnsupportedError(
                "a model whose tokens see later ones cannot be sampled from",
                seen=decoder.spec.family,
                remedy="Train it on texts that are given.",
            )
        self._decoder = decoder
        self._num_places = num_places
        self._cache: list[tuple[Tensor, Tensor]] = []
        self._lengths_B = torch.zeros(0, dtype=torch.int64)

    def read(self, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Reads the first `lengths_B` tokens of each row, and returns the logits [B, V] of the
        token after them."""
        self._cache = [self._empty(len(tokens_BT), layer) for layer in self._layers()]
        self._lengths_B = lengths_B.clone()
        x_BTD = self._run(tokens_BT, torch.zeros_like(lengths_B))
        return self._predict(x_BTD[torch.arange(len(x_BTD)), lengths_B - 1])

    def add(self, tokens_B: Tensor) -> Tensor:
        """Adds a token to each row, and returns the logits [B, V] of the token after it."""
        x_B1D = self._run(tokens_B[:, None], self._lengths_B)
        self._lengths_B = self._lengths_B + 1
        return self._predict(x_B1D[:, 0])

    def keep(self, rows_B: Tensor) -> None:
        """Forgets all rows but those of these indices."""
        self._cache = [(k_BKSC[rows_B], v_BKSC[rows_B]) for k_BKSC, v_BKSC in self._cache]
        self._lengths_B = self._lengths_B[rows_B]

    def _layers(self) -> list[Layer]:
        layers = list(self._decoder.layers)
        assert all(isinstance(layer, Layer) for layer in layers)
        return layers  # type: ignore[return-value]

    def _empty(self, num_rows: int, layer: Layer) -> tuple[Tensor, Tensor]:
        attention = layer.spec.attention
        shape = num_rows, attention.num_kv_heads, self._num_places, attention.head_dim
        return torch.zeros(shape), torch.zeros(shape)

    def _run(self, tokens_BT: Tensor, starts_B: Tensor) -> Tensor:
        """Returns the output of the last layer, [B, T, D]. What lies in the cache after a row's end
        is seen by no token, and is written over when the row gets there."""
        positions_BT = starts_B[:, None] + torch.arange(tokens_BT.shape[1])
        num_seen = int(positions_BT.max()) + 1
        x_BTD = self._decoder.embed(tokens_BT, positions_BT)
        x_BTD = x_BTD.to(self._decoder.sum_dtype)
        views: dict[Attention, _View] = {}
        for layer, cache in zip(self._layers(), self._cache, strict=True):
            attention = layer.spec.attention
            if attention not in views:
                views[attention] = self._view(attention, positions_BT, num_seen)
            mixed_BTO = _mix(layer, x_BTD, positions_BT, views[attention], cache)
            x_BTD = layer.add_mlp(layer.add_attention(x_BTD, mixed_BTO), x_BTD)
        return x_BTD

    def _view(self, attention: Attention, positions_BT: Tensor, num_seen: int) -> _View:
        distances_BTS = positions_BT[:, :, None] - torch.arange(num_seen)
        is_seen_BTS = distances_BTS >= 0
        if attention.window is not None:
            is_seen_BTS &= distances_BTS < attention.window
        if attention.rotary is None:
            return None, is_seen_BTS
        positions_N = positions_BT.flatten()
        lengths_N = torch.full_like(positions_N, self._num_places)
        table = rotation_at(attention.rotary, attention.head_dim, positions_N.float(), lengths_N)
        num_rows, num_tokens = positions_BT.shape
        cos, sin = (one.view(num_rows, 1, num_tokens, -1) for one in table)
        return (cos, sin), is_seen_BTS

    def _predict(self, x_BD: Tensor) -> Tensor:
        return self._decoder.predict(x_BD[:, None])[:, 0].float()


def _mix(
    layer: Layer,
    x_BTD: Tensor,
    positions_BT: Tensor,
    view: _View,
    cache: tuple[Tensor, Tensor],
) -> Tensor:
    """Returns the attended heads [B, T, H * C], and writes keys and values to the cache."""
    attention, (table, is_seen_BTS) = layer.spec.attention, view
    q_BHTC, k_BKTC, v_BKTC = layer.all_heads(layer.normed("attention_norm", x_BTD))
    if table is not None:
        q_BHTC, k_BKTC = rotate(q_BHTC, table), rotate(k_BKTC, table)
    if attention.temperature is not None:
        q_BHTC = q_BHTC * query_growth(attention.temperature, positions_BT[:, None])
    q_BHTC = layer.tap("q", q_BHTC)
    rows_B1 = torch.arange(len(x_BTD))[:, None]
    for kept_BKSC, new_BKTC in zip(
        cache, (layer.tap("k", k_BKTC), layer.tap("v", v_BKTC)), strict=True
    ):
        kept_BKSC[rows_B1, :, positions_BT] = new_BKTC.transpose(1, 2).to(kept_BKSC.dtype)
    num_seen = is_seen_BTS.shape[-1]
    k_BK1SC, v_BK1SC = (one[:, :, None, :num_seen] for one in cache)
    num_rows, _, num_tokens, num_columns = q_BHTC.shape
    q_BKGTC = q_BHTC.reshape(num_rows, attention.num_kv_heads, -1, num_tokens, num_columns)
    scores_BKGTS = q_BKGTC @ k_BK1SC.transpose(-1, -2) * attention.score_scale
    if attention.soft_cap is not None:
        scores_BKGTS = capped(scores_BKGTS, attention.soft_cap)
    hidden_B11TS = ~is_seen_BTS[:, None, None]
    shares_BKGTS = scores_BKGTS.masked_fill(hidden_B11TS, -torch.inf).softmax(dim=-1)
    mixed_BHTC = (shares_BKGTS @ v_BK1SC).flatten(1, 2)
    return mixed_BHTC.transpose(1, 2).flatten(2)

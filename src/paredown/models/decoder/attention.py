"""Multi-head attention in PyTorch, once queries, keys and values are computed. Shapes: B sequences,
T tokens, H query heads, K key-value heads, C columns of a head, S sinks, R buckets of relative
positions."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from paredown.models.decoder.points import Tap
from paredown.models.decoder.relative import relative_scores
from paredown.models.decoder.rotary import RotationTable, rotate, rotation_table, table_in_cache
from paredown.spec.attention import Attention, QueryTemperature
from paredown.spec.attention_sinks import AttentionSinks

# A layer's positions: the rotation table, if there is one, and the mask. The mask is true where a
# query (row) may see a key (column), before the layer's window narrows it.
Positions = tuple[RotationTable | None, Tensor]
# Those of a fused layer may have no mask where each token sees all before it: half of the scores
# are then not computed.
FusedPositions = tuple[RotationTable | None, Tensor | None]


def position_inputs(
    attention: Attention, num_tokens: int, sinks: AttentionSinks | None = None
) -> Positions:
    """Returns the positions of the first `num_tokens` tokens."""
    table = None
    if attention.rotary is not None:
        dtype = torch.float32 if sinks is None else torch.float64
        table = rotation_table(attention.rotary, attention.head_dim, num_tokens, dtype)
    mask_TT = torch.ones(num_tokens, num_tokens, dtype=torch.bool)
    return table, mask_TT.tril() if attention.is_causal else mask_TT


@dataclass(frozen=True, kw_only=True)
class HeadMixer:
    """Mixes tokens by the attention heads of one layer. With `is_fused` this is a single call where
    the layer allows it: several times faster, but scores and probabilities pass no tap.
    `biases_RH` is the table of relative positions, if the attention has them."""

    attention: Attention
    sinks: AttentionSinks | None
    tap: Tap
    is_fused: bool
    biases_RH: Tensor | None = None

    def mix(
        self, q_BHTC: Tensor, k_BKTC: Tensor, v_BKTC: Tensor, positions: FusedPositions
    ) -> Tensor:
        """Returns [B, T, H * C] from queries and keys that are not rotated yet."""
        attention, tap = self.attention, self.tap
        table, mask_TT = positions
        unturned_BHTC = q_BHTC
        if table is not None:
            q_BHTC, k_BKTC = rotate(q_BHTC, table), rotate(k_BKTC, table)
        if attention.temperature is not None:
            positions_T = _positions(mask_TT, q_BHTC.shape[2])
            growth_T1 = query_growth(attention.temperature, positions_T)
            q_BHTC, unturned_BHTC = q_BHTC * growth_T1, unturned_BHTC * growth_T1
        q_BHTC, k_BKTC, v_BKTC = tap("q", q_BHTC), tap("k", k_BKTC), tap("v", v_BKTC)
        k_BHTC = k_BKTC.repeat_interleave(attention.num_heads_per_group, dim=1)
        v_BHTC = v_BKTC.repeat_interleave(attention.num_heads_per_group, dim=1)
        mask_TT = None if mask_TT is None else self.visible(mask_TT)
        relative_HTT = self._relative(q_BHTC.shape[2])
        if self.is_fused and attention.soft_cap is None:
            assert self.sinks is None
            bias = mask_TT
            if relative_HTT is not None:
                assert mask_TT is not None
                bias = relative_HTT.masked_fill(~mask_TT, -torch.inf)
            mixed_BHTC = functional.scaled_dot_product_attention(
                q_BHTC, k_BHTC, v_BHTC, bias, is_causal=mask_TT is None, scale=attention.scale
            )
        else:
            assert mask_TT is not None
            scores_BHTT = q_BHTC @ k_BHTC.transpose(-1, -2) * attention.score_scale
            if relative_HTT is not None:
                scores_BHTT = scores_BHTT + relative_HTT
            if self.sinks is not None and table is not None:
                self._meet_sinks(
                    scores_BHTT, rotate_in_cache(unturned_BHTC, table, self.sinks), k_BHTC
                )
            if attention.soft_cap is not None:
                scores_BHTT = capped(scores_BHTT, attention.soft_cap)
            scores_BHTT = tap("scores", scores_BHTT)
            weights_BHTT = scores_BHTT.masked_fill(~mask_TT, -torch.inf).softmax(dim=-1)
            mixed_BHTC = tap("probabilities", weights_BHTT) @ v_BHTC
        return mixed_BHTC.transpose(1, 2).flatten(2)

    def _relative(self, num_tokens: int) -> Tensor | None:
        relative = self.attention.relative
        if relative is None:
            return None
        assert self.biases_RH is not None
        return relative_scores(
            relative, self.biases_RH, num_tokens, is_causal=self.attention.is_causal
        )

    def visible(self, mask_TT: Tensor) -> Tensor:
        """Narrows the mask to the window and the sinks."""
        window = self.attention.window if self.sinks is None else self.sinks.window
        if window is None:
            return mask_TT
        far_TT = torch.ones_like(mask_TT).tril(-window)
        if not self.attention.is_causal:
            far_TT |= torch.ones_like(mask_TT).triu(window)
        if self.sinks is not None:
            far_TT[:, : self.sinks.num_sink_tokens] = False
        return mask_TT & ~far_TT

    def _meet_sinks(self, scores_BHTT: Tensor, q_BHTC: Tensor, k_BHTC: Tensor) -> None:
        """Replaces the scores against the sinks in place."""
        assert self.sinks is not None
        sinks_BHSC = k_BHTC[:, :, : self.sinks.num_sink_tokens]
        scores_BHTS = q_BHTC @ sinks_BHSC.transpose(-1, -2) * self.attention.score_scale
        scores_BHTT[..., : self.sinks.num_sink_tokens] = scores_BHTS


def _positions(mask_TT: Tensor | None, num_tokens: int) -> Tensor:
    """Returns the position of each token in its own text. Where rows of several texts have masks
    of their own, [B, 1, T, T], that is how many tokens it sees before it."""
    if mask_TT is None or mask_TT.dim() == 2:
        return torch.arange(num_tokens)
    return mask_TT.sum(-1) - 1


def rotate_in_cache(q_BHTC: Tensor, table: RotationTable, sinks: AttentionSinks) -> Tensor:
    """Rotates queries for their scores against the sinks."""
    return rotate(q_BHTC, table_in_cache(table, sinks))


def query_growth(temperature: QueryTemperature, positions_T: Tensor) -> Tensor:
    """Returns the factors [T, 1] for queries at these positions."""
    rounds_T = positions_T // temperature.num_positions
    return (1 + temperature.beta * (1 + rounds_T).double().log()).float()[..., None]


def capped(x: Tensor, soft_cap: float) -> Tensor:
    """Limits values to between -`soft_cap` and `soft_cap`; values near zero hardly change (Gemma
    2)."""
    return soft_cap * torch.tanh(x / soft_cap)

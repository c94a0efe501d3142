"""Rotary positions, in PyTorch.

Shapes: B sequences, H heads, T tokens, C columns of a head, R columns that are rotated, F
frequencies, one for two columns.
"""

import torch
from torch import Tensor

from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.rotary import Rotary

# Cosines and sines, [T, R].
RotationTable = tuple[Tensor, Tensor]


def rotation_table(
    rotary: Rotary, head_dim: int, num_tokens: int, dtype: torch.dtype = torch.float32
) -> RotationTable:
    """Returns the table for a text of `num_tokens` tokens."""
    lengths_T = torch.full((num_tokens,), num_tokens)
    return rotation_at(rotary, head_dim, torch.arange(num_tokens, dtype=dtype), lengths_T)


def rotation_at(
    rotary: Rotary, head_dim: int, positions_T: Tensor, lengths_T: Tensor
) -> RotationTable:
    """Returns cosines and sines of tokens in texts of these lengths. Both halves of the rotated
    columns turn by the same angles. These are computed in the dtype of the positions, because
    beyond a model's context float32 is too coarse."""
    frequencies_TF = _frequencies(rotary, head_dim, lengths_T.to(positions_T.device))
    angles_TF = positions_T[:, None] * frequencies_TF
    angles_TR = torch.cat([angles_TF, angles_TF], dim=-1)
    factor = rotary.attention_factor
    return angles_TR.cos().float() * factor, angles_TR.sin().float() * factor


def _frequencies(rotary: Rotary, head_dim: int, lengths_T: Tensor) -> Tensor:
    """Returns [T, F], or [1, F] where the length of the text does not matter."""

    def of(num_tokens: int) -> Tensor:
        found = rotary.inverse_frequencies(head_dim, num_tokens)
        return torch.tensor(found, dtype=torch.float32, device=lengths_T.device)

    switch = rotary.switch_tokens
    if switch is None:
        return of(0)[None]
    return torch.where(lengths_T[:, None] > switch, of(switch + 1), of(0))


def rotate(x_BHTC: Tensor, table: RotationTable) -> Tensor:
    """Rotates the first R columns in the rotate-half form: (x1, x2) -> (x1 cos - x2 sin, x2 cos +
    x1 sin)."""
    cos_TR, sin_TR = table
    num_columns = cos_TR.shape[-1]
    if num_columns < x_BHTC.shape[-1]:
        turned = rotate(x_BHTC[..., :num_columns], table)
        return torch.cat([turned, x_BHTC[..., num_columns:]], dim=-1)
    first, second = x_BHTC.chunk(2, dim=-1)
    return x_BHTC * cos_TR + torch.cat([-second, first], dim=-1) * sin_TR


def table_in_cache(table: RotationTable, sinks: AttentionSinks) -> RotationTable:
    """Returns the table for queries that meet the sinks. They are rotated by their place in the
    cache, which never exceeds the cache's size."""
    places_T = torch.arange(len(table[0])).clamp(max=sinks.num_kept_tokens - 1)
    return table[0][places_T], table[1][places_T]

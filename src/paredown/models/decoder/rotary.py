"""Rotary positions, in PyTorch.

Shapes: B sequences, H heads, T tokens, C columns of a head, R of them that are turned.
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
    """The table of so many tokens from the first on."""
    return rotation_at(rotary, head_dim, torch.arange(num_tokens, dtype=dtype))


def rotation_at(rotary: Rotary, head_dim: int, positions_T: Tensor) -> RotationTable:
    """Cosines and sines; both halves of what is turned turn by the same angles, which are found in
    the dtype of the positions: beyond the context of a model float32 is not enough."""
    frequencies = torch.tensor(
        rotary.inverse_frequencies(head_dim), dtype=torch.float32, device=positions_T.device
    )
    angles = positions_T[:, None] * frequencies
    angles_TR = torch.cat([angles, angles], dim=-1)
    return angles_TR.cos().float(), angles_TR.sin().float()


def rotate(x_BHTC: Tensor, table: RotationTable) -> Tensor:
    """Rotary embedding, rotate-half form: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), of the
    first R columns."""
    cos_TR, sin_TR = table
    num_columns = cos_TR.shape[-1]
    if num_columns < x_BHTC.shape[-1]:
        turned = rotate(x_BHTC[..., :num_columns], table)
        return torch.cat([turned, x_BHTC[..., num_columns:]], dim=-1)
    first, second = x_BHTC.chunk(2, dim=-1)
    return x_BHTC * cos_TR + torch.cat([-second, first], dim=-1) * sin_TR


def table_in_cache(table: RotationTable, sinks: AttentionSinks) -> RotationTable:
    """The table of the queries that meet the sinks: they are turned as at their place in the cache,
    which no token passes."""
    places_T = torch.arange(len(table[0])).clamp(max=sinks.num_kept_tokens - 1)
    return table[0][places_T], table[1][places_T]

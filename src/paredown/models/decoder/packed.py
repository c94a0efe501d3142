"""Positions of rows that hold several texts: each begins at position 0 and sees itself alone.

Shapes: B rows, T tokens, R columns that are rotated.
"""

import torch
from torch import Tensor

from paredown.models.decoder.attention import Positions
from paredown.models.decoder.rotary import RotationTable, rotation_at
from paredown.spec.attention import Attention


def text_positions(texts_BT: Tensor) -> Tensor:
    """Returns each token's position in its text. `texts_BT` numbers the text of each token; the
    tokens of a text stand side by side."""
    starts_BT = torch.ones_like(texts_BT, dtype=torch.bool)
    starts_BT[:, 1:] = texts_BT[:, 1:] != texts_BT[:, :-1]
    places_T = torch.arange(texts_BT.shape[1])
    return places_T - torch.where(starts_BT, places_T, 0).cummax(dim=1).values


def packed_positions(attention: Attention, texts_BT: Tensor) -> Positions:
    """Returns the rotation table [B, 1, T, R], if there is one, and the mask [B, 1, T, T]."""
    mask_BTT = texts_BT[:, :, None] == texts_BT[:, None, :]
    if attention.is_causal:
        mask_BTT = mask_BTT.tril()
    return _table(attention, texts_BT), mask_BTT[:, None]


def _table(attention: Attention, texts_BT: Tensor) -> RotationTable | None:
    if attention.rotary is None:
        return None
    positions_N = text_positions(texts_BT).flatten().float()
    lengths_BT = (texts_BT[:, :, None] == texts_BT[:, None, :]).sum(-1)
    shape = (len(texts_BT), 1, texts_BT.shape[1], -1)
    cos, sin = rotation_at(attention.rotary, attention.head_dim, positions_N, lengths_BT.flatten())
    return cos.view(shape), sin.view(shape)

"""Relative positions, in PyTorch: learned numbers that are added to the scores.

Shapes: T tokens, S keys where these are other tokens, H heads, R buckets.
"""

import math

import torch
from torch import Tensor

from paredown.spec.attention import RelativePositions


def relative_buckets(
    relative: RelativePositions, queries_T: Tensor, keys_T: Tensor, *, is_causal: bool
) -> Tensor:
    """Returns the bucket of each pair of positions, [queries, keys] (arXiv 1910.10683, 2.1).

    Where tokens see later ones, the upper half of the buckets is for keys after the query. Half of
    the rest holds one distance each; the others hold ranges that grow by a constant factor."""
    distances_TT = queries_T[:, None] - keys_T[None]
    num_buckets, first_TT = relative.num_buckets, torch.zeros_like(distances_TT)
    if is_causal:
        distances_TT = distances_TT.clamp(min=0)
    else:
        num_buckets //= 2
        first_TT = (distances_TT < 0) * num_buckets
        distances_TT = distances_TT.abs()
    num_exact = num_buckets // 2
    octaves = math.log(relative.max_distance / num_exact)
    grown_TT = torch.log(distances_TT.float() / num_exact) / octaves * (num_buckets - num_exact)
    # The logarithm of 0 is not taken: near distances have their own buckets.
    far_TT = num_exact + grown_TT.clamp(min=0).long()
    far_TT = far_TT.clamp(max=num_buckets - 1)
    return first_TT + torch.where(distances_TT < num_exact, distances_TT, far_TT)


def relative_scores(
    relative: RelativePositions, biases_RH: Tensor, num_tokens: int, *, is_causal: bool
) -> Tensor:
    """Returns what is added to the scores of the first `num_tokens` tokens, [H, T, T]."""
    positions_T = torch.arange(num_tokens, device=biases_RH.device)
    return scores_between(relative, biases_RH, positions_T, positions_T, is_causal=is_causal)


def scores_between(
    relative: RelativePositions,
    biases_RH: Tensor,
    queries_T: Tensor,
    keys_S: Tensor,
    *,
    is_causal: bool,
) -> Tensor:
    """Returns what is added to the scores of queries and keys at these positions, [H, T, S]."""
    buckets_TS = relative_buckets(relative, queries_T, keys_S, is_causal=is_causal)
    return biases_RH[buckets_TS].permute(2, 0, 1)

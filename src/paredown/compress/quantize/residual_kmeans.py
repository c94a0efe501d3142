"""Residual K-means: the initial codebooks of AQLM (arXiv 2401.06118, section 3.1; Chen et al.
2010).

The first codebook holds the K means of the vectors, and each next one those of the remainders.
Shapes: N vectors of C columns, M codebooks, K vectors of a codebook.
"""

import torch
from torch import Tensor

# The distances held at once.
_CHUNK_VALUES = 1 << 22


def residual_kmeans(
    vectors_NC: Tensor, num_codebooks: int, codebook_size: int, num_iterations: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Returns codebooks [M, K, C] and codes [N, M] (int64)."""
    generator = torch.Generator().manual_seed(seed)
    left_NC = vectors_NC
    codebooks, codes = [], []
    for _ in range(num_codebooks):
        means_KC = kmeans(left_NC, codebook_size, num_iterations, generator)
        codes_N, _ = nearest(left_NC, means_KC)
        left_NC = left_NC - means_KC[codes_N]
        codebooks.append(means_KC)
        codes.append(codes_N)
    return torch.stack(codebooks), torch.stack(codes, dim=1)


def kmeans(
    vectors_NC: Tensor, num_means: int, num_iterations: int, generator: torch.Generator
) -> Tensor:
    """Returns the means [K, C] by Lloyd's algorithm, starting from random vectors. A mean that
    lost all its vectors moves to the vector that is farthest from its own mean. Fewer vectors than
    means leave zeros."""
    num_vectors = vectors_NC.shape[0]
    drawn = torch.randperm(num_vectors, generator=generator)[:num_means]
    means_KC = vectors_NC.new_zeros(num_means, vectors_NC.shape[1])
    means_KC[: len(drawn)] = vectors_NC[drawn]
    if num_vectors <= num_means:
        return means_KC
    for _ in range(num_iterations):
        codes_N, distances_N = nearest(vectors_NC, means_KC)
        counts_K = torch.bincount(codes_N, minlength=num_means).to(vectors_NC.dtype)
        sums_KC = torch.zeros_like(means_KC).index_add_(0, codes_N, vectors_NC)
        moved_KC = sums_KC / counts_K.clamp(min=1)[:, None]
        empty = (counts_K == 0).nonzero().flatten()
        moved_KC[empty] = vectors_NC[distances_N.topk(len(empty)).indices]
        if torch.equal(moved_KC, means_KC):
            break
        means_KC = moved_KC
    return means_KC


def nearest(vectors_NC: Tensor, means_KC: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the nearest mean of each vector [N], and its squared distance [N]."""
    halves_K = means_KC.square().sum(1) / 2
    chunk = max(1, _CHUNK_VALUES // means_KC.shape[0])
    codes, distances = [], []
    for rows_NC in torch.split(vectors_NC, chunk):
        best = (halves_K - rows_NC @ means_KC.T).min(dim=1)
        codes.append(best.indices)
        distances.append(rows_NC.square().sum(1) + 2 * best.values)
    return torch.cat(codes), torch.cat(distances)

"""AQLM's update of codebooks and scales for fixed codes (arXiv 2401.06118, section 3.2, phase 2).

For fixed codes the loss tr((W - W') H (W - W')^T) is a quadratic in the codebooks, and one in the
scales. The paper uses Adam. Here conjugate gradients find the codebooks' minimum without a
learning rate, and a row's scale has a closed form. Neither can increase the loss.

Shapes: O output rows, I input columns, J groups of C columns, M codebooks of K vectors.
"""

import torch
from torch import Tensor

from paredown.compress.quantize.codebook_search import additive_values, row_losses

# Conjugate gradients end when the preconditioned residual's square has fallen to this share.
_CONVERGED = 1e-6


def tune_codebooks(
    weight_OI: Tensor,
    hessian_II: Tensor,
    codes_OJM: Tensor,
    codebooks_MKC: Tensor,
    scales_O: Tensor,
    num_iterations: int,
) -> Tensor:
    """Returns codebooks [M, K, C] after that many steps of conjugate gradients from
    `codebooks_MKC`, preconditioned by the quadratic's diagonal. Vectors that no code names stay
    the same."""
    scales_O1 = scales_O[:, None]

    def values(codebooks_MKC: Tensor) -> Tensor:
        return scales_O1 * additive_values(codes_OJM, codebooks_MKC)

    def gather(slopes_OI: Tensor) -> Tensor:
        return gathered(scales_O1 * slopes_OI, codes_OJM, codebooks_MKC.shape)

    curvature_MKC = gathered(
        scales_O1.square() * hessian_II.diagonal(), codes_OJM, codebooks_MKC.shape
    )
    inverse_MKC = torch.where(curvature_MKC > 0, 1 / curvature_MKC, 0)
    tuned_MKC = codebooks_MKC.clone()
    left_MKC = gather((weight_OI - values(tuned_MKC)) @ hessian_II)
    step_MKC = inverse_MKC * left_MKC
    first = size = (left_MKC * step_MKC).sum()
    for _ in range(num_iterations):
        # Moving a vector from all of one codebook to all of another changes nothing. Along such
        # directions rounding errors would dominate once nothing else is left.
        if not bool(size > _CONVERGED * first):
            break
        values_OI = values(step_MKC)
        pull_OI = values_OI @ hessian_II
        bend = (values_OI * pull_OI).sum()
        length = size / bend
        tuned_MKC += length * step_MKC
        left_MKC -= length * gather(pull_OI)
        ahead_MKC = inverse_MKC * left_MKC
        next_size = (left_MKC * ahead_MKC).sum()
        step_MKC = ahead_MKC + next_size / size * step_MKC
        size = next_size
    before = row_losses(weight_OI - values(codebooks_MKC), hessian_II).sum()
    after = row_losses(weight_OI - values(tuned_MKC), hessian_II).sum()
    return tuned_MKC if bool(after < before) else codebooks_MKC


def tune_scales(
    weight_OI: Tensor,
    hessian_II: Tensor,
    codes_OJM: Tensor,
    codebooks_MKC: Tensor,
    scales_O: Tensor,
) -> Tensor:
    """Returns the best scale of each row [O]: w H v^T / v H v^T, with v the row without its scale.
    A row for which v H v^T is zero keeps its scale."""
    values_OI = additive_values(codes_OJM, codebooks_MKC)
    pull_OI = values_OI @ hessian_II
    squares_O = (pull_OI * values_OI).sum(1)
    products_O = (pull_OI * weight_OI).sum(1)
    return torch.where(squares_O > 0, products_O / squares_O, scales_O)


def gathered(slopes_OI: Tensor, codes_OJM: Tensor, shape: torch.Size) -> Tensor:
    """Returns [M, K, C]: for each vector the sum of `slopes_OI` over the places where a code names
    it."""
    num_codebooks, codebook_size, size = shape
    places_NC = slopes_OI.reshape(-1, size)
    sums = [
        slopes_OI.new_zeros(codebook_size, size).index_add_(
            0, codes_OJM[:, :, m].flatten(), places_NC
        )
        for m in range(num_codebooks)
    ]
    return torch.stack(sums)

"""A product of integers with zero points: the four-term expansion (docs/activations.md).

Letters: T tokens, O output rows, I input columns, G groups of columns. With input codes q_x and
weight codes q_w of b bits, zero points z_x (one per token) and z_w (one per row and group), a
group of C columns gives

    sum (q_x - z_x) (q_w - z_w) = sum q_x q_w - z_w sum q_x - z_x sum q_w + C z_x z_w

The first term is a plain product of codes, which is what hardware does fast; the second is one sum
per token, the third is known before any input is, the fourth is a constant (arXiv 1712.05877,
equation 7). All four and their sum are int32, exact: nothing is rounded before the scales come.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.errors import UnsupportedError

_INT32_MAX = (1 << 31) - 1
# Codes and zero points lie in [-128, 127], so that a difference has at most this magnitude.
_MAX_DIFFERENCE = 255


@dataclass(frozen=True, kw_only=True)
class FourTerms:
    """Each int32 and broadcastable to [T, O, G]; `accumulators` is what they add up to."""

    products_TOG: Tensor
    input_sums_TOG: Tensor
    weight_sums_TOG: Tensor
    constants_TOG: Tensor

    def accumulators(self) -> Tensor:
        return self.products_TOG - self.input_sums_TOG - self.weight_sums_TOG + self.constants_TOG


def four_terms(
    x_codes_TI: Tensor, x_zeros_T: Tensor, w_codes_OI: Tensor, w_zeros_OG: Tensor
) -> FourTerms:
    """int8 codes; zero points are whole numbers within int8's range. Raises UnsupportedError when a
    group is so long that its sum could pass int32."""
    num_groups = w_zeros_OG.shape[1]
    size = w_codes_OI.shape[1] // num_groups
    if size * _MAX_DIFFERENCE**2 > _INT32_MAX:
        raise UnsupportedError(
            f"the product of {size} columns may pass 32 bits",
            seen=f"{size} x {_MAX_DIFFERENCE}^2 > 2^31 - 1",
            remedy="Use groups of columns (int4-g128), each of which has a sum of its own.",
        )
    x_TGC = x_codes_TI.to(torch.int32).reshape(x_codes_TI.shape[0], num_groups, size)
    w_OGC = w_codes_OI.to(torch.int32).reshape(w_codes_OI.shape[0], num_groups, size)
    x_zeros_T11 = x_zeros_T.to(torch.int32)[:, None, None]
    w_zeros_OG = w_zeros_OG.to(torch.int32)
    products_GTO = torch.bmm(x_TGC.transpose(0, 1), w_OGC.permute(1, 2, 0))
    return FourTerms(
        products_TOG=products_GTO.permute(1, 2, 0),
        input_sums_TOG=x_TGC.sum(-1, dtype=torch.int32)[:, None] * w_zeros_OG,
        weight_sums_TOG=x_zeros_T11 * w_OGC.sum(-1, dtype=torch.int32),
        constants_TOG=size * x_zeros_T11 * w_zeros_OG,
    )


def scaled_product(accumulators_TOG: Tensor, x_scales_T: Tensor, w_scales_OG: Tensor) -> Tensor:
    """[T, O] in the scales' dtype: sum over the groups of s_x s_w times their accumulator."""
    products_TOG = accumulators_TOG.to(w_scales_OG.dtype) * w_scales_OG
    return products_TOG.sum(-1) * x_scales_T[:, None]

"""A chain of linear layers in integers alone, int8 in and out of each (arXiv 1712.05877).

Letters: T tokens, O output rows, I input columns. With scales s_x of the input, s_w of a row of
weights and s_y of the output, a layer's accumulator a (int32, bias included) becomes the code

    q_y = clamp(z_y + round(a M))        M = s_x s_w / s_y ~= m 2^-n

with a whole multiplier m of 31 bits and a shift n: a m is exact in int64, the shift rounds once,
halves upwards. (The paper's library rounds twice, in its high product and in its shift.) A ReLU is
a clamp at z_y.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.compress.activations import StaticScale
from paredown.compress.integer_product import four_terms
from paredown.errors import UnsupportedError

_MULTIPLIER_BITS = 31
_MAX_SHIFT = 62
# So that an accumulator with its bias times a multiplier, and half a step more, is below 2^63.
_MAX_BIAS = 1 << 30
_LOW, _HIGH = -128, 127


@dataclass(frozen=True, kw_only=True)
class IntegerLayer:
    """Weight codes int8 and zero points int32 of each row; `bias_O` int32 in units of s_x s_w;
    `multipliers_O` int64 below 2^31 and `shifts_O` int64; `relu` clamps at the output's zero."""

    w_codes_OI: Tensor
    w_zeros_O: Tensor
    bias_O: Tensor
    x_zero: int
    y_zero: int
    multipliers_O: Tensor
    shifts_O: Tensor
    relu: bool = False

    def run(self, x_codes_TI: Tensor) -> Tensor:
        """int8 codes [T, I] to int8 codes [T, O]."""
        x_zeros_T = torch.full((x_codes_TI.shape[0],), self.x_zero)
        terms = four_terms(x_codes_TI, x_zeros_T, self.w_codes_OI, self.w_zeros_O[:, None])
        accumulators_TO = terms.accumulators()[..., 0].to(torch.int64) + self.bias_O
        codes_TO = requantized(accumulators_TO, self.multipliers_O, self.shifts_O) + self.y_zero
        low = max(_LOW, self.y_zero) if self.relu else _LOW
        return codes_TO.clamp(low, _HIGH).to(torch.int8)


def run_chain(layers: Sequence[IntegerLayer], x_codes_TI: Tensor) -> Tensor:
    """The codes of the last layer's output."""
    for layer in layers:
        x_codes_TI = layer.run(x_codes_TI)
    return x_codes_TI


def make_integer_layer(
    w_codes_OI: Tensor,
    w_scales_O: Tensor,
    w_zeros_O: Tensor,
    bias_O: Tensor,
    x: StaticScale,
    y: StaticScale,
    *,
    relu: bool = False,
) -> IntegerLayer:
    """A layer of codes (signed, whole numbers) and float scales and bias. Raises UnsupportedError
    for a bias beyond 2^30 steps of s_x s_w, or an M beyond the shifts."""
    ratios = [x.scale * float(scale) / y.scale for scale in w_scales_O]
    pairs = [fixed_point(ratio) for ratio in ratios]
    bias_codes_O = (bias_O.double() / (x.scale * w_scales_O.double())).round()
    if float(bias_codes_O.abs().max()) > _MAX_BIAS:
        raise UnsupportedError(
            "a bias is too large beside its layer's scales",
            seen=f"{float(bias_codes_O.abs().max()):.3g} steps",
            remedy="Its row has weights close to zero; keep this layer in floats.",
        )
    return IntegerLayer(
        w_codes_OI=w_codes_OI.to(torch.int8),
        w_zeros_O=w_zeros_O.to(torch.int32),
        bias_O=bias_codes_O.to(torch.int32),
        x_zero=int(x.zero),
        y_zero=int(y.zero),
        multipliers_O=torch.tensor([multiplier for multiplier, _ in pairs]),
        shifts_O=torch.tensor([shift for _, shift in pairs]),
        relu=relu,
    )


def fixed_point(ratio: float) -> tuple[int, int]:
    """m and n with m 2^-n nearest to `ratio` and 2^30 <= m < 2^31 (smaller only where n would pass
    its largest). Raises UnsupportedError for a ratio of 2^30 or more, or none above zero."""
    if not 0 < ratio < 1 << (_MULTIPLIER_BITS - 1):
        raise UnsupportedError(
            "the scales of a layer's input, weights and output are too far apart",
            seen=f"s_x s_w / s_y = {ratio}",
            remedy="Calibrate the ranges again, or keep this layer in floats.",
        )
    exponent = math.frexp(ratio)[1]
    shift = min(_MULTIPLIER_BITS - exponent, _MAX_SHIFT)
    multiplier = round(math.ldexp(ratio, shift))
    if multiplier == 1 << _MULTIPLIER_BITS:
        return multiplier >> 1, shift - 1
    return multiplier, shift


def requantized(accumulators_TO: Tensor, multipliers_O: Tensor, shifts_O: Tensor) -> Tensor:
    """round(a m 2^-n), halves upwards, int64; |a| is below 2^31 + 2^30."""
    half_O = torch.ones_like(shifts_O) << (shifts_O - 1)
    return (accumulators_TO * multipliers_O + half_O) >> shifts_O

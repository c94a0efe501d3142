"""LLM.int8() (arXiv 2208.07339): uses 8 bits for inputs and weights, except for the few columns
with large inputs, which are multiplied in 16 bits.

Shapes: T tokens, I columns, O rows.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from paredown.compress.grid import Grid, storable_scales, to_weight
from paredown.compress.quantize.method import ROUND_TO_NEAREST, LayerTarget, Moments, Quantized
from paredown.errors import UnsupportedError
from paredown.models.decoder.decoder import Decoder
from paredown.models.roles import linear_places
from paredown.spec.experts import split_role
from paredown.spec.weight import ScaleDType, WeightSpec

# An input column with a magnitude of at least this is an outlier (section 3.2 of the paper).
THRESHOLD = 6.0
_LARGEST_CODE = 127
_NO_SPLIT = (
    "LLM.int8() multiplies large inputs in 16 bits and rounds the others to int8; here all inputs "
    "are rounded to int8, or with --activations fp32 none, which is more exact"
)


@dataclass(frozen=True, kw_only=True)
class LLMInt8:
    """Stores all columns as codes, as bitsandbytes does. Outlier inputs are found at run time by
    an executor that looks for them (`LLMInt8Linear`; the native one does not)."""

    needs_hessian: ClassVar[bool] = False
    without_inputs: ClassVar[str] = ROUND_TO_NEAREST
    holds_zeros: ClassVar[bool] = True

    def stored_spec(self, spec: WeightSpec) -> WeightSpec:
        return spec

    def check(self, spec: WeightSpec) -> None:
        if spec.dtype != "int8" or spec.group_size is not None or not spec.symmetric:
            raise UnsupportedError(
                f"llm_int8 cannot make {spec.name}: LLM.int8() stores symmetric int8 with one "
                "scale per row",
                seen=f"method llm_int8 with format {spec.name}",
                remedy="Give format int8 (recipe llm-int8), or another method: gptq, for one.",
            )

    def quantize(
        self, weight_OI: Tensor, target: LayerTarget, moments: Moments | None
    ) -> Quantized:
        """Quantizes a weight. Raises UnsupportedError for a form other than int8 rows."""
        spec = target.spec
        self.check(spec)
        codes_OI, scales_O = row_codes(target.held(weight_OI), target.scale_dtype)
        grid = Grid(
            spec=spec,
            scale_dtype=target.scale_dtype,
            scales_OG=scales_O[:, None],
            zeros_OG=torch.zeros_like(scales_O[:, None]),
        )
        return Quantized(weight=to_weight(codes_OI, grid), notes=(_NO_SPLIT,))


def row_codes(weight_OI: Tensor, scale_dtype: ScaleDType) -> tuple[Tensor, Tensor]:
    """Returns codes from -127 to 127, and scales absmax / 127 rounded as they are stored."""
    scales_O = storable_scales(weight_OI.abs().amax(1) / _LARGEST_CODE, scale_dtype)
    codes_OI = (weight_OI / scales_O[:, None]).round().clamp(-_LARGEST_CODE, _LARGEST_CODE)
    return codes_OI, scales_O


def llm_int8_product(
    x_TI: Tensor, codes_OI: Tensor, scales_O: Tensor, outliers_OI: Tensor, threshold: float
) -> Tensor:
    """Returns the product [T, O] of equation 8. Columns of `x_TI` with a magnitude of at least
    `threshold` are multiplied with those of `outliers_OI` in fp16. In the others x is rounded row
    by row, with outlier columns set to 0, and multiplied with the codes.

    `outliers_OI` are the paper's 16-bit weights, or, if only codes were kept (bitsandbytes), the
    dequantized codes. Integer products are summed in float64, exactly.
    """
    is_outlier_I = (x_TI.abs() >= threshold).any(0)
    large_TI = x_TI[:, is_outlier_I].half().to(x_TI)
    product_TO = large_TI @ outliers_OI[:, is_outlier_I].half().to(x_TI).T
    small_TI = x_TI.masked_fill(is_outlier_I, 0)
    scales_T1 = small_TI.abs().amax(1, keepdim=True) / _LARGEST_CODE
    codes_TI = (small_TI / scales_T1.masked_fill(scales_T1 == 0, 1.0)).round()
    integers_TO = codes_TI.double() @ codes_OI.double().T
    return product_TO + integers_TO.to(x_TI) * scales_T1 * scales_O


class LLMInt8Linear(nn.Module):
    """A linear layer that multiplies by `llm_int8_product`."""

    def __init__(self, linear: nn.Linear, threshold: float, outliers_from_codes: bool) -> None:
        super().__init__()
        self.codes_OI, self.scales_O = row_codes(linear.weight.data, "fp32")
        self.outliers_OI = linear.weight.data
        if outliers_from_codes:
            self.outliers_OI = self.codes_OI * self.scales_O[:, None]
        self.bias_O = linear.bias
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        x_TI = x.reshape(-1, x.shape[-1])
        weights = self.codes_OI, self.scales_O, self.outliers_OI
        y_TO = llm_int8_product(x_TI, *weights, self.threshold)
        if self.bias_O is not None:
            y_TO = y_TO + self.bias_O
        return y_TO.view(*x.shape[:-1], -1)


@torch.no_grad()
def use_llm_int8(
    decoder: Decoder, *, outliers_from_codes: bool, threshold: float = THRESHOLD
) -> None:
    """Replaces the linear layers inside the decoder's transformer layers. With
    `outliers_from_codes` the outliers' weights come from the codes, as in bitsandbytes for a
    stored model. Otherwise they are the model's own, in 16 bits, as in the paper."""
    for role, index in linear_places(decoder.spec):
        layer = decoder.layers[index]
        linear = layer.get_submodule(role)
        assert isinstance(linear, nn.Linear)
        owner, own = split_role(role)
        replacement = LLMInt8Linear(linear, threshold, outliers_from_codes)
        layer.get_submodule(owner).register_module(own, replacement)

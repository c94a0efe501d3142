"""QuantizedLinear: a linear layer that computes with its rounded weight while it is trained.

Shapes: O rows, I columns, G groups of columns, C columns of a group.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from paredown.compress.fit_grid import fit_grid
from paredown.compress.grid import TORCH_DTYPES, Grid, decode, encode, grouped, to_weight
from paredown.compress.steps import StepSizeRule
from paredown.distill.quantized.fake_quantize import fake_quantize
from paredown.distill.quantized.step_sizes import StepSizes, signed_codes
from paredown.distill.quantized.straight_through import straight_through
from paredown.formats.grid_weight import GridWeight
from paredown.spec.weight import ScaleDType, WeightSpec

# How near to its borders a weight may begin in the cell of its code, in shares of the cell.
_MARGIN = 0.02


class QuantizedLinear(nn.Module):
    """Trains `weight` and rounds it in each pass, by `rule`:

    learned   on the scales of `start`, which are trained too (LSQ)
    fixed     on the scales of `start`
    minmax    on a grid that covers the weight as it is now (LLM-QAT, arXiv 2305.17888)

    At the beginning the codes are those of `start`. A weight begins where `floats_OI`, the weight
    before it was rounded, is nearest in the cell of its code, or in the middle of the cell.
    """

    def __init__(
        self,
        start: GridWeight,
        bias: Tensor | None,
        *,
        rule: StepSizeRule,
        floats_OI: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.spec = start.spec
        self.scale_dtype = start.scale_dtype
        self.input_scale = start.input_scale
        self.steps = None
        if rule == "minmax":
            values_OI = torch.from_numpy(start.at_work()) if floats_OI is None else floats_OI
        else:
            self.steps = StepSizes(start, is_learned=rule == "learned")
            values_OI = _in_cells(start, self.steps.grid(), floats_OI)
        self.weight = nn.Parameter(values_OI)
        self.bias = bias

    def values(self) -> Tensor:
        """Returns [O, I], what the layer multiplies with."""
        if self.steps is None:
            grid = self.grid()
            scales_OG, zeros_OG = grid.scales_OG, grid.zeros_OG
        else:
            scales_OG, zeros_OG = self.steps.scales(), self.steps.zeros_OG
        values_OI = fake_quantize(self.weight, scales_OG, zeros_OG, self.spec)
        return _as_held(values_OI, self.spec, self.scale_dtype)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.values(), self.bias)

    def grid(self) -> Grid:
        """Returns the grid as it is now."""
        if self.steps is not None:
            return self.steps.grid()
        return fit_grid(
            grouped(self.weight.detach(), self.spec.group_size), self.spec, self.scale_dtype
        )

    def stored(self) -> GridWeight:
        """Returns the weight as it will be stored: its values are those of the forward pass."""
        grid = self.grid()
        codes_OGC = grid.codes(grouped(self.weight.detach(), self.spec.group_size))
        return _with_inputs(to_weight(codes_OGC.reshape(self.weight.shape), grid), self)


class ScaledCodes(nn.Module):
    """Keeps the codes of `start` and trains its scales alone (the second stage of EfficientQAT,
    arXiv 2407.11062, section 3.3)."""

    def __init__(self, start: GridWeight, bias: Tensor | None) -> None:
        super().__init__()
        self.spec = start.spec
        self.input_scale = start.input_scale
        self.steps = StepSizes(start, is_learned=True)
        self.codes_OI: Tensor
        self.register_buffer("codes_OI", signed_codes(start))
        self.bias = bias

    def values(self) -> Tensor:
        codes_OGC = grouped(self.codes_OI.float(), self.spec.group_size)
        centered_OGC = codes_OGC.sub_(self.steps.zeros_OG[..., None])
        values_OGC = centered_OGC * self.steps.scales()[..., None]
        values_OI = values_OGC.view(self.codes_OI.shape)
        return _as_held(values_OI, self.spec, self.steps.scale_dtype)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.values(), self.bias)

    def stored(self) -> GridWeight:
        return _with_inputs(to_weight(self.codes_OI.float(), self.steps.grid()), self)


def _as_held(values_OI: Tensor, spec: WeightSpec, scale_dtype: ScaleDType) -> Tensor:
    """Returns the values that the native core holds: floats of the scales' dtype where no kernel
    takes the codes."""
    if spec.has_kernel(values_OI.shape[1]):
        return values_OI
    dtype = TORCH_DTYPES[scale_dtype]
    return straight_through(values_OI, lambda values: values.to(dtype).float())


def _with_inputs(weight: GridWeight, layer: QuantizedLinear | ScaledCodes) -> GridWeight:
    scale = layer.input_scale
    return weight if scale is None else weight.with_input_scale(scale)


def _in_cells(start: GridWeight, grid: Grid, floats_OI: Tensor | None) -> Tensor:
    """Returns values [O, I] whose codes are those of `start`."""
    codes_OGC = grouped(signed_codes(start).float(), start.spec.group_size)
    scales_OG1, zeros_OG1 = grid.scales_OG[..., None], grid.zeros_OG[..., None]
    middle_OGC = decode(codes_OGC, scales_OG1, zeros_OG1)
    if floats_OI is None or not start.spec.is_integer:
        return middle_OGC.reshape(start.shape)
    assert floats_OI.shape == start.shape, (floats_OI.shape, start.shape)
    places_OGC = grouped(floats_OI, start.spec.group_size) / scales_OG1 + zeros_OG1
    reach = 0.5 - _MARGIN
    near_OGC = torch.minimum(torch.maximum(places_OGC, codes_OGC - reach), codes_OGC + reach)
    values_OGC = decode(near_OGC, scales_OG1, zeros_OG1)
    is_same_OGC = encode(values_OGC, scales_OG1, zeros_OG1, start.spec) == codes_OGC
    return torch.where(is_same_OGC, values_OGC, middle_OGC).reshape(start.shape)

"""The scales of a trained weight: learned, or those that it began with.

Shapes: O rows, G groups of columns.
"""

import numpy as np
import torch
from torch import Tensor, nn

from paredown.compress.grid import Grid, storable_scales
from paredown.distill.quantized.straight_through import straight_through
from paredown.formats.grid_weight import GridWeight

# A learned scale stays above this share of the one that it began with: it has no sign.
_LEAST_FACTOR = 2.0**-6


class StepSizes(nn.Module):
    """The grid of one weight. Learned scales are `factors`, from 1 on, times those at the
    beginning, so that one learning rate serves weights of any size. The forward pass rounds them to
    the dtype that they are stored in."""

    def __init__(self, start: GridWeight, *, is_learned: bool) -> None:
        super().__init__()
        self.spec = start.spec
        self.scale_dtype = start.scale_dtype
        scales_OG, zeros_OG = _grid_arrays(start)
        self.start_OG: Tensor
        self.zeros_OG: Tensor
        self.register_buffer("start_OG", scales_OG)
        self.register_buffer("zeros_OG", zeros_OG)
        self.factors = nn.Parameter(torch.ones_like(scales_OG)) if is_learned else None

    def scales(self) -> Tensor:
        """Returns the scales [O, G], each a number of the stored dtype."""
        if self.factors is None:
            return self.start_OG
        scales_OG = self.start_OG * self.factors.clamp(min=_LEAST_FACTOR)
        return straight_through(scales_OG, lambda one: storable_scales(one, self.scale_dtype))

    def grid(self) -> Grid:
        return Grid(
            spec=self.spec,
            scale_dtype=self.scale_dtype,
            scales_OG=self.scales().detach(),
            zeros_OG=self.zeros_OG,
        )


def signed_codes(weight: GridWeight) -> Tensor:
    """Returns the codes [O, I] that (code - zero) * scale are values of: int8 or e4m3 numbers."""
    stored_OI = torch.from_numpy(np.array(weight.values_OI))
    if not weight.spec.is_integer:
        return stored_OI.view(torch.float8_e4m3fn)
    half = 1 << (weight.spec.bits - 1)
    return (stored_OI.to(torch.int16) - half).to(torch.int8)


def _grid_arrays(weight: GridWeight) -> tuple[Tensor, Tensor]:
    """Returns the scales and the signed zero points."""
    assert weight.scales_OG is not None, "floats have no grid"
    scales_OG = torch.from_numpy(np.array(weight.scales_OG, np.float32))
    if weight.zero_points_OG is None:
        return scales_OG, torch.zeros_like(scales_OG)
    half = 1 << (weight.spec.bits - 1)
    return scales_OG, torch.from_numpy(weight.zero_points_OG.astype(np.float32)) - half

"""SparseGPT and GPTQ in one loop (arXiv 2301.00774, section 3.5): a column's weights are removed or
rounded, and the remaining columns compensate for both errors.

A first loop that only prunes finds the weights that stay and how far they grow, and so the grids.
Grids of the unpruned weight lose 1 to 3 % more (docs/log.md).
"""

from dataclasses import dataclass, replace

from torch import Tensor

from paredown.compress.column_solver import ColumnSolver
from paredown.compress.fit_grid import fit_grid
from paredown.compress.grid import grouped
from paredown.compress.hessian_factor import NoFactor
from paredown.compress.prune.column_mask import ColumnMask
from paredown.compress.prune.method import Seen
from paredown.compress.prune.pattern import NOfM, Pattern
from paredown.compress.prune.sparsegpt import SparseGPT, solve_zeros
from paredown.compress.quantize.gptq import GPTQ, Rounding
from paredown.compress.quantize.method import LayerTarget, Moments, Quantized
from paredown.formats.integer import group_columns


@dataclass(frozen=True, kw_only=True)
class PrunedCodes:
    """`quantized` is exactly 0 wherever `mask_OI` is false. Its loss and notes are those of both
    methods."""

    quantized: Quantized
    mask_OI: Tensor


@dataclass(frozen=True, kw_only=True)
class JointSparseGPT:
    """Prunes as `pruner` and rounds as `quantizer`. The order of the columns and the damping are
    the pruner's; groups' grids are found before anything is rounded, whatever GPTQ's options
    say."""

    pruner: SparseGPT
    quantizer: GPTQ

    def compress(
        self, weight_OI: Tensor, pattern: Pattern, target: LayerTarget, moments: Moments
    ) -> PrunedCodes:
        """Prunes and quantizes a weight, computing in its dtype. Without a factor of H it prunes
        by magnitude and rounds to nearest, and says so in the notes.

        Raises CheckpointError if weights or H are not finite, ConfigError for columns that the
        pattern does not fit, UnsupportedError if groups do not divide the columns.
        """
        assert target.mask_OI is None
        spec = target.spec
        group_columns(spec, weight_OI.shape[1])
        if isinstance(pattern, NOfM):
            pattern.check_columns(weight_OI.shape[1])
        factor = self.pruner.factor(weight_OI, pattern, moments)
        if isinstance(factor, NoFactor):
            return self._without_factor(weight_OI, pattern, target, moments)
        grid = target.grid
        if grid is None:
            first = self.pruner.mask(weight_OI, pattern, factor)
            values_OI = solve_zeros(weight_OI, factor, first).values_OI
            values_OGC = grouped(values_OI, spec.group_size)
            grid = fit_grid(values_OGC, spec, target.scale_dtype, self.quantizer.range)
        mask = self.pruner.mask(weight_OI, pattern, factor)
        rounding = Rounding(grid, factor, mask_IO=mask.mask_IO)
        settling = PrunedRounding(mask, rounding)
        loss = ColumnSolver(factor.without_dead(weight_OI), factor, settling).solve()
        return PrunedCodes(
            quantized=Quantized(weight=rounding.weight(), notes=factor.notes, loss=loss),
            mask_OI=factor.restored(mask.mask_IO),
        )

    def _without_factor(
        self, weight_OI: Tensor, pattern: Pattern, target: LayerTarget, moments: Moments
    ) -> PrunedCodes:
        pruned = self.pruner.prune(weight_OI, pattern, Seen(moments=moments))
        masked = replace(target, mask_OI=pruned.mask_OI)
        quantized = self.quantizer.quantize(pruned.values_OI, masked, moments)
        notes = pruned.notes + quantized.notes
        return PrunedCodes(quantized=replace(quantized, notes=notes), mask_OI=pruned.mask_OI)


class PrunedRounding:
    """Chooses a mask and rounds to a grid, whose zeros are those of the mask."""

    def __init__(self, mask: ColumnMask, rounding: Rounding) -> None:
        self.stretch = mask.stretch
        self.begin = mask.choose
        self.settle = rounding.settle

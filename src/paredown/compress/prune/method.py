"""The interfaces of pruning methods that make single weights zero: their inputs and results.

A pruner chooses which weights of one linear layer stay, and may change those. A refinement improves
what a pruner chose. Structured methods, which make layers smaller, are in compress/cut/.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from paredown.compress.prune.pattern import Pattern
from paredown.compress.quantize.method import Moments


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """The gradients of the whole model's loss for one weight [O, I], over the calibration windows:
    the mean of |g|, the mean of g^2 (the diagonal of the empirical Fisher matrix), and the largest
    |g|, for the gradient g of each window's mean loss."""

    mean_OI: Tensor
    square_OI: Tensor
    largest_OI: Tensor


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Besides the weight, all that a method may look at; moments and gradients are there where it
    asks for them. `module` is the name of the weight's module in the checkpoint."""

    module: str | None = None
    moments: Moments | None = None
    gradients: Gradients | None = None


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """`values_OI` are exactly 0 wherever `mask_OI` is false. `loss` is 1/2 tr(D H D^T) of the
    change D, None if no H was used. `notes` say for the report what was not done as asked."""

    values_OI: Tensor
    mask_OI: Tensor
    notes: tuple[str, ...] = ()
    loss: float | None = None


class Pruner(Protocol):
    """A frozen dataclass of a method's options, with one main function."""

    needs_hessian: ClassVar[bool]
    needs_gradients: ClassVar[bool]

    def check(self, pattern: Pattern) -> None:
        """Checks a pattern when a recipe is built. Raises UnsupportedError for one that the method
        does not make."""
        ...

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        """Prunes `weight_OI` [O, I] in float32 or float64, which stays unchanged. Raises
        ConfigError for columns that the pattern does not fit."""
        ...


class Refinement(Protocol):
    """A frozen dataclass of a refinement's options, with one main function."""

    def refine(
        self, weight_OI: Tensor, pruned: Pruned, pattern: Pattern, moments: Moments
    ) -> Pruned:
        """Returns a better choice or better values. `weight_OI` is the weight before it was
        pruned."""
        ...

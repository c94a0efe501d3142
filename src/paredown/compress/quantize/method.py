"""The interfaces of compression methods: their targets, inputs and results.

A quantizer turns the floats of one linear layer into a stored weight. A transform changes a whole
transformer layer before that, so that less is lost, without changing what it computes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from paredown.compress.grid import Grid
from paredown.errors import ConfigError, UnsupportedError
from paredown.formats.weight import StoredSpec, Weight
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import Tap
from paredown.spec.model import ModelSpec
from paredown.spec.weight import ScaleDType, WeightSpec

# What most methods do for a layer whose inputs no token reached.
ROUND_TO_NEAREST = "round to nearest"


@dataclass(frozen=True, kw_only=True)
class LayerTarget:
    """The target of one linear layer. Scales have the dtype of the checkpoint's floats. `grid` is
    what a transform found for the weight (Transformed); None leaves it to the quantizer. Wherever
    `mask_OI` is false the stored weight is exactly 0; None holds no zeros."""

    spec: WeightSpec
    scale_dtype: ScaleDType
    grid: Grid | None = None
    mask_OI: Tensor | None = None

    @property
    def searched(self) -> "LayerTarget":
        """The target that a transform rounds to while it searches. It has no integer steps, which
        take ten times as long to fit and round nearly like independent groups."""
        return replace(self, spec=replace(self.spec, integer_steps=False))

    def held(self, weight_OI: Tensor) -> Tensor:
        """Returns the weight with its zeros. Every grid has a code for exactly 0, so that rounding
        to nearest keeps them."""
        if self.mask_OI is None:
            return weight_OI
        assert self.mask_OI.shape == weight_OI.shape, (self.mask_OI.shape, weight_OI.shape)
        return weight_OI.masked_fill(~self.mask_OI, 0)


@dataclass(frozen=True, kw_only=True)
class Moments:
    """The calibration statistics of the N rows x that a linear layer reads.

    `hessian_II` is 2/N times the sum of x x^T, in float32 or float64. All linear layers that read
    the same input share it.
    """

    hessian_II: Tensor
    num_rows: int


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """`weight` as it will be stored. `notes` say for the report what was not done as asked (a
    damping that had to grow, a fallback). `loss` is 1/2 tr(D H D^T) of the change D, which is the
    mean of |D x|^2 over the calibration inputs x; None if no H was used."""

    weight: Weight
    notes: tuple[str, ...] = ()
    loss: float | None = None

    def values(self) -> Tensor:
        """Returns [O, I], the values that the layer multiplies with from now on."""
        return torch.from_numpy(self.weight.at_work())


class Quantizer(Protocol):
    """A frozen dataclass of a method's options, with one main function. `without_inputs` says for
    people what a method that needs inputs does without any. `holds_zeros` says whether it makes
    the zeros of `LayerTarget.mask_OI` (`check_holds_zeros`)."""

    needs_hessian: ClassVar[bool]
    without_inputs: ClassVar[str]
    holds_zeros: ClassVar[bool]

    def stored_spec(self, spec: WeightSpec) -> StoredSpec:
        """Returns the form of the weights that are made when `spec` is asked for: `spec` itself if
        they lie on a grid."""
        ...

    def check(self, spec: WeightSpec) -> None:
        """Checks a format when a recipe is built. Raises ConfigError or UnsupportedError for a
        format that the method does not make."""
        ...

    def quantize(
        self, weight_OI: Tensor, target: LayerTarget, moments: Moments | None
    ) -> Quantized:
        """Quantizes `weight_OI` [O, I] in float32 or float64, which stays unchanged. `moments` is
        given if `needs_hessian` is true."""
        ...


def check_grid(method: str, spec: WeightSpec) -> None:
    """Checks a format for methods that make codes on a grid. Raises ConfigError for a float
    format."""
    if not spec.is_grid:
        raise ConfigError(
            f"{method} cannot make {spec.name}: a step of a recipe makes codes",
            seen=f"method {method} with format {spec.name}",
            remedy="Give a quantized format (int8); floats: casts what is left in floats.",
        )


def check_holds_zeros(quantizer: Quantizer) -> None:
    """Raises UnsupportedError for a method that cannot quantize a pruned weight."""
    if not quantizer.holds_zeros:
        name = type(quantizer).__name__
        raise UnsupportedError(
            f"{name} would fill the zeros of a pruned weight: it has no code for exactly 0",
            seen=f"{name} after pruning",
            remedy="Quantize the pruned weight by another method: gptq, for one.",
        )


class Block(Protocol):
    """One transformer layer during calibration (compress/calibrate/block.py)."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def layer(self) -> Layer: ...
    @property
    def table(self) -> tuple[Tensor, Tensor] | None:
        """The rotation table that the layer is called with."""
        ...

    @property
    def mask(self) -> Tensor:
        """The attention mask that the layer is called with."""
        ...

    def inputs(self) -> Iterator[Tensor]:
        """Yields the layer's calibration inputs, [B, T, D] each; may be called repeatedly."""
        ...

    def encoded(self) -> Iterator[Tensor | None]:
        """Yields the vectors [B, S, D] that cross-attention reads beside each of these batches;
        None where the layer has none."""
        ...

    def run(self, tap: Tap, stop_after: str | None = None) -> None:
        """Passes all calibration inputs through the layer as it is now, batch by batch. `tap` sees
        the values at every point and may change them. Each batch ends after the point
        `stop_after`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Transformed:
    """The result of a transform besides its changes to the layer: `notes`, and by role `grids` for
    rounding the changed weights, if their spec has integer steps. RTN and GPTQ use them; HQQ fits
    its own."""

    notes: tuple[str, ...] = ()
    grids: Mapping[str, Grid] = field(default_factory=dict)


class Transform(Protocol):
    """A frozen dataclass of a method's options, with one main function."""

    def apply(self, block: Block, targets: Mapping[str, LayerTarget]) -> Transformed:
        """Changes the weights of `block.layer` in place. `targets` has the targets of its linear
        layers by role, except for roles that stay in floats."""
        ...

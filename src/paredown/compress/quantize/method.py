"""What methods have in common: what they are asked for, what they know, what they answer.

A quantizer makes a stored weight of one linear layer's floats. A transform changes a whole
transformer layer before that, without changing what it computes, so that less is lost.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from paredown.compress.grid import Grid
from paredown.errors import ConfigError
from paredown.formats.weight import StoredSpec, Weight
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import Tap
from paredown.spec.model import ModelSpec
from paredown.spec.weight import ScaleDType, WeightSpec

# What most methods do of a layer whose inputs no token reached.
ROUND_TO_NEAREST = "round to nearest"


@dataclass(frozen=True, kw_only=True)
class LayerTarget:
    """What one linear layer is to become. Scales have the dtype of the checkpoint's floats. `grid`
    is what a transform has found for the weight (Transformed); None leaves it to the quantizer."""

    spec: WeightSpec
    scale_dtype: ScaleDType
    grid: Grid | None = None

    @property
    def searched(self) -> "LayerTarget":
        """What a transform rounds to while it searches: without integer steps, which take ten times
        as long to fit and round nearly as the groups alone would."""
        return replace(self, spec=replace(self.spec, integer_steps=False))


@dataclass(frozen=True, kw_only=True)
class Moments:
    """What calibration learned of the N rows x that a linear layer reads.

    `hessian_II` is 2/N times the sum of x x^T, in float32 or float64; with one GPU-free pass it is
    shared by all linear layers that read the same input.
    """

    hessian_II: Tensor
    num_rows: int


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """`weight` as it will be stored; `notes` say what was not done as asked (a damping that had to
    grow, a fallback), in words for the report. `loss` is 1/2 tr(D H D^T) of the change D, which is
    the mean over the calibration inputs x of |D x|^2; None where no H was looked at."""

    weight: Weight
    notes: tuple[str, ...] = ()
    loss: float | None = None

    def values(self) -> Tensor:
        """[O, I], what the layer multiplies with from now on."""
        return torch.from_numpy(self.weight.at_work())


class Quantizer(Protocol):
    """A frozen dataclass of a method's options with its one function. `without_inputs` says, for
    people, what a method that looks at inputs does where none were seen."""

    needs_hessian: ClassVar[bool]
    without_inputs: ClassVar[str]

    def stored_spec(self, spec: WeightSpec) -> StoredSpec:
        """The form of the weights that are made when `spec` is asked for: `spec` itself where they
        lie on a grid."""
        ...

    def check(self, spec: WeightSpec) -> None:
        """Called when a recipe is put together. Raises ConfigError or UnsupportedError for a format
        that the method does not make."""
        ...

    def quantize(
        self, weight_OI: Tensor, target: LayerTarget, moments: Moments | None
    ) -> Quantized:
        """`weight_OI` [O, I] float32 or float64, which stays as it is; `moments` is there when
        `needs_hessian` says so."""
        ...


def check_grid(method: str, spec: WeightSpec) -> None:
    """For methods that make codes on a grid. Raises ConfigError for a float format."""
    if not spec.is_grid:
        raise ConfigError(
            f"{method} cannot make {spec.name}: a step of a recipe makes codes",
            seen=f"method {method} with format {spec.name}",
            remedy="Give a quantized format (int8); floats: casts what is left in floats.",
        )


class Block(Protocol):
    """One transformer layer at work during calibration (compress/calibrate/block.py)."""

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
        """The layer's calibration inputs, [B, T, D] each; as often as it is asked."""
        ...

    def run(self, tap: Tap, stop_after: str | None = None) -> None:
        """Passes all calibration inputs through the layer as it is now, batch by batch, and lets
        `tap` see (and change) the values at every point; ends each batch after the point
        `stop_after`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Transformed:
    """What a transform tells beside what it did to the layer: `notes`, and by role `grids` on which
    the changed weights are meant to be rounded, of those whose spec has integer steps. RTN and
    GPTQ take them; HQQ fits its own."""

    notes: tuple[str, ...] = ()
    grids: Mapping[str, Grid] = field(default_factory=dict)


class Transform(Protocol):
    """A frozen dataclass of a method's options with its one function."""

    def apply(self, block: Block, targets: Mapping[str, LayerTarget]) -> Transformed:
        """Changes the weights of `block.layer` in place; `targets` says by role what its linear
        layers will become (a role that stays in floats is not in it)."""
        ...

"""The interfaces of structured pruning: what a cut removes, what it sees, and what it reports.

A cut removes whole units of a model (neurons of an MLP, key-value heads, layers, experts), so that
an ordinary smaller checkpoint comes out. Methods that make single weights zero are in
compress/prune/.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from torch import Tensor

from paredown.compress.cut.compensation import DAMP, FitSums, compensated
from paredown.compress.cut.kept_units import Indices
from paredown.spec.model import ModelSpec

Unit = Literal["neurons", "heads", "layers", "experts"]


@dataclass(frozen=True, kw_only=True)
class Compensation:
    """Least squares from calibration inputs (compensation.py). `follows_original` lets the o and
    down of every layer after the first cut aim at the original's residual, instead of at what they
    gave before."""

    damp: float = DAMP
    follows_original: bool = True


class Cut(Protocol):
    """A frozen dataclass of one cut's options. `compensation` None leaves the weights as they
    are."""

    unit: ClassVar[Unit]

    @property
    def compensation(self) -> Compensation | None: ...

    def check(self, spec: ModelSpec) -> ModelSpec:
        """Returns the model after the cut; for layers one with the first ones removed. Raises
        ConfigError for a share that cannot be had, and UnsupportedError for a model without such
        units."""
        ...


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A linear layer's weight with the sums over its calibration inputs. `scores_I` are a survey's
    scores of the columns, where a cut made one."""

    weight_OI: Tensor
    hessian_II: Tensor
    cross_OI: Tensor
    has_targets: bool
    scores_I: Tensor | None = None
    near_zero_I: Tensor | None = None

    @classmethod
    def of(cls, weight_OI: Tensor, sums: FitSums, **seen: Tensor | None) -> "Fit":
        hessian_II = sums.moments().hessian_II
        return cls(
            weight_OI=weight_OI,
            hessian_II=hessian_II,
            cross_OI=sums.cross(hessian_II),
            has_targets=sums.has_targets,
            **seen,
        )

    @property
    def is_dead(self) -> bool:
        """Whether every input was zero for every token."""
        return not bool(self.hessian_II.diagonal().any())

    def solved(self, kept: Indices, damp: float) -> Tensor:
        """Returns the compensated weight [O, K]."""
        return compensated(self.weight_OI, self.hessian_II, self.cross_OI, kept, damp)


@dataclass(frozen=True, kw_only=True)
class CutResult:
    """The written checkpoint, and what came out.

    `share`        share of the source's parameters that were removed
    `sizes`        by size ("neurons", "key-value heads"), its value before and after
    `kept_layers`  the original's numbers of the layers, None where all are there
    `notes`        what was not done as asked, and what was seen
    `predicted_bytes`, `predicted_disk_bytes`   peaks of the calibration; None without one
    """

    name: str
    path: Path
    share: float
    sizes: Mapping[str, tuple[int, int]]
    kept_layers: tuple[int, ...] | None
    file_bytes: int
    notes: tuple[str, ...] = ()
    calibration: str | None = None
    predicted_bytes: int | None = None
    predicted_disk_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The results of a cut's first pass over the whole model: the layers that stay, and scores of
    columns by role of the linear layer that reads them."""

    layers: tuple[int, ...]
    scores: Mapping[tuple[int, str], Tensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

"""Weight: the numbers of one linear layer as stored, of any kind."""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from paredown.spec.weight import ScaleDType, WeightSpec


class StoredSpec(Protocol):
    """The form of a stored weight: WeightSpec for grids, CodebookSpec for codebooks."""

    @property
    def name(self) -> str:
        """The form's usual name: int4-g128, aqlm-2x8-g8."""


class Weight(Protocol):
    """A weight of O output rows and I input columns. The kinds are `GridWeight` (codes on a grid,
    or floats), `BlockWeight` (super-blocks with their own scales), and `CodebookWeight` (sums of
    vectors)."""

    @property
    def spec(self) -> StoredSpec: ...

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def input_scale(self) -> float | None:
        """The inputs' stored scale, if there is one."""

    def with_input_scale(self, scale: float) -> Self:
        """Returns the weight with a stored scale for its inputs."""

    def dequantize(self) -> npt.NDArray[np.float32]:
        """Returns [O, I], bit for bit as the libraries of its format do."""

    def at_work(self) -> npt.NDArray[np.float32]:
        """Returns [O, I], the values that a linear layer multiplies with."""

    def for_core(self) -> "CoreWeight":
        """Returns the weight in a kind that the native core can hold."""


class CoreWeight(Weight, Protocol):
    """A weight whose arrays the native core can pack."""

    @property
    def spec(self) -> WeightSpec: ...

    @property
    def scale_dtype(self) -> ScaleDType:
        """The dtype of scales, and of the dequantized weight."""

    def arrays(self) -> Mapping[str, npt.NDArray[np.generic]]:
        """Returns the numbers by the names of a LinearSource (kernels/linear_source.py)."""

    def rows(self, chosen: slice | npt.NDArray[np.integer]) -> Self:
        """Returns the weight of some of its output rows."""

    def stacked(self, others: Sequence[Self]) -> Self:
        """Returns this weight with the output rows of `others` below its own. They must share its
        spec, width and input scale."""

"""InputStatistics: the statistics of the inputs at one point of a layer during calibration."""

import math

import numpy as np
from torch import Tensor

from paredown.compress.calibrate.moments import HessianSum, inputs_not_finite
from paredown.compress.quantize.method import Moments
from paredown.formats.floating import cast
from paredown.spec.weight import ScaleDType

# The largest magnitude gets the code 127.5, as in compressed-tensors' symmetric scales.
_STEPS = 127.5
# The assumed magnitude for inputs that were always zero; any scale fits them.
_SMALLEST = 1e-5


class InputStatistics:
    """`largest` is the largest magnitude of `num_rows` rows. Second moments are summed if
    `wants_hessian` was set before the first batch."""

    def __init__(self, num_columns: int) -> None:
        self.wants_hessian = False
        self.num_columns = num_columns
        self.num_rows = 0
        self.largest = 0.0
        self._hessian: HessianSum | None = None
        self._moments: Moments | None = None

    def add(self, x: Tensor) -> None:
        """Adds [.., I] inputs. Raises CheckpointError if one is not finite."""
        largest = float(x.abs().max())
        if not math.isfinite(largest):
            raise inputs_not_finite(largest)
        self.largest = max(self.largest, largest)
        self.num_rows += x.numel() // self.num_columns
        if self.wants_hessian:
            if self._hessian is None:
                self._hessian = HessianSum(self.num_columns)
            self._hessian.add(x)

    def moments(self) -> Moments | None:
        """Returns the moments of all inputs so far; None if they were not wanted."""
        if self._moments is None and self._hessian is not None:
            self._moments = self._hessian.moments()
        return self._moments

    def static_scale(self, dtype: ScaleDType) -> float:
        """Returns the scale of int8_static activations, storable in `dtype`."""
        return static_input_scale(self.largest, dtype)


def static_input_scale(largest: float, dtype: ScaleDType) -> float:
    """Returns the scale for inputs of at most that magnitude, storable in `dtype`."""
    scale = np.array([max(largest, _SMALLEST) / _STEPS], np.float32)
    return float(cast(scale, dtype).tensor.to_float32()[0])

"""LinearSource: an unpacked weight on its way into the native core, and the only type that crosses
the binding."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.kernels.bitmap_choice import BitmapChoice

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class LinearSource:
    """A weight of O output rows and I columns. csrc/weights/source.h has the same fields; one that
    it does not know is refused, and so is an array that the kind does not have.

    arrays, contiguous, by name:
        values       [O, I]  float32 (fp32), 16-bit words (fp16, bf16) or unsigned codes, one to a
                             byte (fp8: its bits)
        scales       [O, G]  float32, of codes; G = I / group_size
        zero_points  [O, G]  uint8, of asymmetric codes
        steps        [O, G]  uint8, 1 to 16, of int4 codes with int8_row or int8_static activations:
                             the scale of a group is its row's, scales [O, 1], times the step, and
                             (code - zero point) * step is from -128 to 127, so that the weight runs
                             as int8 with one scale per row ("progressive group quantization",
                             QServe, Lin et al. 2024)
        bias         [O]     float32
    `input_scale` belongs to int8_static activations. `bitmap` says when zeros become a bit each.
    """

    kind: str
    activations: str
    group_size: int
    arrays: Mapping[str, Array]
    input_scale: float = 0.0
    bitmap: BitmapChoice = "auto"

    def fields(self) -> dict[str, object]:
        """Returns the fields by name, as the core takes them."""
        return {**vars(self), "arrays": dict(self.arrays)}


def named_arrays(**arrays: Array | None) -> dict[str, Array]:
    """Returns the given arrays by name."""
    return {name: array for name, array in arrays.items() if array is not None}

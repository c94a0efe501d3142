"""Weight: one linear layer's numbers as loaded, before a kernel packs them. NumPy only."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.spec.weight import ScaleDType, WeightSpec


@dataclass(frozen=True, kw_only=True)
class Weight:
    """O output rows, I input columns, G groups of columns.

    values_OI       fp32: float32; fp16: float16; bf16: uint16 holding the bits;
                    integers: uint8 holding the unsigned code (signed code + 2^(bits-1));
                    fp8: uint8 holding the e4m3 bits
    scales_OG       float32, every entry exactly representable in `scale_dtype`; None for floats
    zero_points_OG  uint8 unsigned codes; None for floats and symmetric integers (2^(bits-1))
    input_scale     of int8_static activations, else None
    The value of an integer weight is (code - zero_point) * scale, of an fp8 weight number * scale.
    """

    spec: WeightSpec
    values_OI: npt.NDArray[np.generic]
    scales_OG: npt.NDArray[np.float32] | None = None
    zero_points_OG: npt.NDArray[np.uint8] | None = None
    scale_dtype: ScaleDType = "bf16"
    input_scale: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.values_OI.shape[0], self.values_OI.shape[1]

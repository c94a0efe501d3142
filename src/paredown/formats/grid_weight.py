"""GridWeight: codes on a grid with their scales, or plain floats, as stored. NumPy only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from paredown.formats.e4m3 import decode_fp8
from paredown.formats.floating import cast, round_to
from paredown.formats.tensor import bf16_to_float32
from paredown.spec.weight import ScaleDType, WeightSpec

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class GridWeight:
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
    scales_OG: Floats | None = None
    zero_points_OG: npt.NDArray[np.uint8] | None = None
    scale_dtype: ScaleDType = "bf16"
    input_scale: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.values_OI.shape[0], self.values_OI.shape[1]

    def with_input_scale(self, scale: float) -> "GridWeight":
        return replace(self, input_scale=scale)

    def for_core(self) -> "GridWeight":
        return self

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        found = {
            "values": np.ascontiguousarray(self.values_OI),
            "scales": self.scales_OG,
            "zero_points": self.zero_points_OG,
        }
        return {name: array for name, array in found.items() if array is not None}

    def rows(self, chosen: slice | npt.NDArray[np.integer]) -> "GridWeight":
        return replace(
            self,
            values_OI=self.values_OI[chosen],
            scales_OG=None if self.scales_OG is None else self.scales_OG[chosen],
            zero_points_OG=None if self.zero_points_OG is None else self.zero_points_OG[chosen],
        )

    def stacked(self, others: Sequence["GridWeight"]) -> "GridWeight":
        if not others:
            return self
        weights = (self, *others)
        scales = [weight.scales_OG for weight in weights if weight.scales_OG is not None]
        zeros = [weight.zero_points_OG for weight in weights if weight.zero_points_OG is not None]
        return replace(
            self,
            values_OI=np.concatenate([weight.values_OI for weight in weights]),
            scales_OG=np.concatenate(scales) if scales else None,
            zero_points_OG=np.concatenate(zeros) if zeros else None,
        )

    def dequantize(self) -> Floats:
        """Returns [O, I], bit for bit as compressed-tensors decompresses it.

        Integers become (code - zero point) * scale, fp8 numbers number * scale, rounded to the
        scale's dtype. Codes have at most 8 bits, so the left factor is exact in every scale dtype,
        and the product is rounded once.
        """
        if self.spec.is_quantized:
            return round_to(self.at_work(), self.scale_dtype)
        if self.spec.dtype == "bf16":
            return bf16_to_float32(self.values_OI)
        return self.values_OI.astype(np.float32)

    def at_work(self) -> Floats:
        """Returns [O, I] in float32, the values that the native core multiplies with: they are not
        rounded to the scale's dtype."""
        if not self.spec.is_quantized:
            return self.dequantize()
        assert self.scales_OG is not None
        num_rows, num_columns = self.shape
        num_groups = self.scales_OG.shape[1]
        values_OGC = self._unscaled().reshape(num_rows, num_groups, -1)
        with np.errstate(over="ignore"):
            values_OGC *= self.scales_OG[:, :, None]
        return values_OGC.reshape(num_rows, num_columns)

    def _unscaled(self) -> Floats:
        """Returns the factors of the scales, [O, I]."""
        if self.spec.dtype == "fp8":
            return decode_fp8(self.values_OI)
        codes_OI = self.values_OI.astype(np.float32)
        if self.zero_points_OG is None:
            codes_OI -= np.float32(1 << (self.spec.bits - 1))
        else:
            size = self.shape[1] // self.zero_points_OG.shape[1]
            codes_OI -= np.repeat(self.zero_points_OG, size, axis=1)
        return codes_OI


def float_weight(values_OI: Floats, dtype: ScaleDType) -> tuple[GridWeight, int]:
    """Returns the weight in `dtype`, and how many of its values were clamped."""
    result = cast(values_OI, dtype)
    weight = GridWeight(spec=WeightSpec(dtype=dtype), values_OI=result.tensor.array)
    return weight, result.num_clamped

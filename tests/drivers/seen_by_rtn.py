"""Round to nearest that requests moments and records them."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paredown.compress.quantize.method import LayerTarget, Moments, Quantized
from paredown.compress.quantize.rtn import RTN


@dataclass(frozen=True, kw_only=True)
class SeenByRTN(RTN):
    """`seen` is shared by all instances and follows the order of calls."""

    needs_hessian: ClassVar[bool] = True
    seen: ClassVar[list[Moments]] = []

    def quantize(
        self, weight_OI: Tensor, target: LayerTarget, moments: Moments | None
    ) -> Quantized:
        assert moments is not None
        SeenByRTN.seen.append(moments)
        return RTN.quantize(self, weight_OI, target, moments)

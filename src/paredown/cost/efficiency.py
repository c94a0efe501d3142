"""Efficiency: the share of its roofs that a machine reached in measured operations.

    operation = call_s + FLOPs / (arithmetic peak) + bytes / (memory bandwidth)

The terms are added, where the roofline takes the larger one: reading and computing never overlap
fully. A share above 1 for memory therefore only says that most of its time overlaps with
arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paredown.cost.least_squares import least_squares
from paredown.cost.roofline import Roofs
from paredown.spec.weight import WeightDType


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """`call_s` is the fixed time of each operation; `arithmetic` and `memory` are shares of the
    roofs. `source` names the measurements that they were fitted to."""

    call_s: float
    arithmetic: float
    memory: float
    source: str

    def seconds(self, arithmetic_s: float, memory_s: float) -> float:
        """Returns the seconds of an operation that takes `arithmetic_s` and `memory_s` at best;
        never less than either."""
        added = self.call_s + arithmetic_s / self.arithmetic + memory_s / self.memory
        return max(arithmetic_s, memory_s, added)


# Fitted by `python -m benchmarks.gpu_tables` to two thirds of the rows of Vidur's profiles of fp16
# products (Agrawal et al., MLSys 2024; github.com/microsoft/vidur), medians; bf16 has their peak.
FITTED_DTYPES: tuple[WeightDType, ...] = ("fp16", "bf16")
_VIDUR = "microsoft/vidur, MLP profiles"
EFFICIENCIES: dict[str, Efficiency] = {
    "a100": Efficiency(call_s=4.8e-6, arithmetic=0.80, memory=1.11, source=f"{_VIDUR}, A100"),
    "h100": Efficiency(call_s=4.8e-6, arithmetic=0.89, memory=1.03, source=f"{_VIDUR}, H100"),
}


@dataclass(frozen=True, kw_only=True)
class MeasuredProduct:
    """A matrix product that was measured."""

    flops: float
    bytes: float
    seconds: float

    def best_s(self, roofs: Roofs) -> float:
        """Returns the best time in bf16 or fp16 by the roofline."""
        return max(self.flops / roofs.bf16_flops_per_s, self.bytes / roofs.bandwidth_bytes_per_s)

    def predicted_s(self, roofs: Roofs, efficiency: Efficiency) -> float:
        return efficiency.seconds(
            self.flops / roofs.bf16_flops_per_s, self.bytes / roofs.bandwidth_bytes_per_s
        )


def fit_efficiency(products: Sequence[MeasuredProduct], roofs: Roofs, source: str) -> Efficiency:
    """Fits the coefficients by least squares of relative errors."""
    rows = [
        (1.0, one.flops / roofs.bf16_flops_per_s, one.bytes / roofs.bandwidth_bytes_per_s)
        for one in products
    ]
    seconds = [one.seconds for one in products]
    call_s, arithmetic, memory = least_squares(rows, seconds, [1 / one for one in seconds])
    return Efficiency(
        call_s=call_s,
        arithmetic=1 / arithmetic if arithmetic else float("inf"),
        memory=1 / memory if memory else float("inf"),
        source=source,
    )

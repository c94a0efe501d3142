"""The roofline (Williams, Waterman, Patterson, CACM 2009): no operation takes less time than its
arithmetic at the machine's peak, nor than its bytes at the machine's bandwidth."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from paredown.cost.model_formats import Unit
from paredown.cost.operation import OperationCost
from paredown.cost.step_cost import StepLoad
from paredown.spec.machine import Machine

Bound = Literal["arithmetic", "memory"]


@dataclass(frozen=True, kw_only=True)
class Roofs:
    """What a machine can do at best. `source` says where the figures are from: a web address, or
    "measured". `activation_bytes` is what a number between two operations takes: float32 in our
    core, two bytes on a GPU, where fp16 has bf16's peak."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    int8_ops_per_s: float
    bf16_flops_per_s: float
    fp32_flops_per_s: float
    source: str
    activation_bytes: int = 4

    @classmethod
    def of(cls, machine: Machine) -> "Roofs":
        """The roofs of a machine that was measured."""
        return cls(
            name=machine.name,
            memory_bytes=machine.memory_bytes,
            bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s,
            int8_ops_per_s=machine.int8_ops_per_s,
            bf16_flops_per_s=machine.bf16_flops_per_s,
            fp32_flops_per_s=machine.fp32_flops_per_s,
            source="measured",
        )

    def with_bandwidth(self, bytes_per_s: float) -> "Roofs":
        """These, with at least such a bandwidth: what a model has that fits the caches."""
        best = max(self.bandwidth_bytes_per_s, bytes_per_s)
        return replace(self, bandwidth_bytes_per_s=best)

    def peak(self, unit: Unit) -> float:
        """Operations per second."""
        peaks = {
            "int8": self.int8_ops_per_s,
            "bf16": self.bf16_flops_per_s,
            "fp32": self.fp32_flops_per_s,
        }
        return peaks[unit]

    def ridge(self, unit: Unit) -> float:
        """Operations per byte from which on arithmetic binds."""
        return self.peak(unit) / self.bandwidth_bytes_per_s


@dataclass(frozen=True, kw_only=True)
class BestTime:
    """What an operation takes at best, and what binds it."""

    seconds: float
    bound: Bound


def best_time(cost: OperationCost, roofs: Roofs) -> BestTime:
    arithmetic_s = cost.flops / roofs.peak(cost.operation.unit)
    memory_s = cost.bytes / roofs.bandwidth_bytes_per_s
    if arithmetic_s > memory_s:
        return BestTime(seconds=arithmetic_s, bound="arithmetic")
    return BestTime(seconds=memory_s, bound="memory")


def best_step_s(costs: Iterable[OperationCost], roofs: Roofs, load: StepLoad) -> float:
    """Seconds of a step at best, one operation after the other, less what need not be computed."""
    return sum(
        best_time(one, roofs).seconds * one.operation.computed_count(load) / one.operation.count
        for one in costs
        if one.operation.count
    )

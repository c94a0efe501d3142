"""The roofline (Williams, Waterman, Patterson, CACM 2009): an operation takes at least the time of
its arithmetic at the machine's peak, and of its bytes at the machine's bandwidth."""

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
    """The limits of a machine. `source` says where the figures come from: a web address, or
    "measured". `activation_bytes` is the size of a value between two operations: 4 in our core
    (float32), 2 on a GPU, where fp16 has the peak of bf16."""

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
        """Returns the roofs of a measured machine."""
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
        """Returns these roofs with at least that bandwidth, for a model that fits the caches."""
        best = max(self.bandwidth_bytes_per_s, bytes_per_s)
        return replace(self, bandwidth_bytes_per_s=best)

    def peak(self, unit: Unit) -> float:
        """Returns the peak in operations per second."""
        peaks = {
            "int8": self.int8_ops_per_s,
            "bf16": self.bf16_flops_per_s,
            "fp32": self.fp32_flops_per_s,
        }
        return peaks[unit]

    def ridge(self, unit: Unit) -> float:
        """Returns the operations per byte above which arithmetic is the limit."""
        return self.peak(unit) / self.bandwidth_bytes_per_s


@dataclass(frozen=True, kw_only=True)
class BestTime:
    """The best time of an operation, and which roof sets it."""

    seconds: float
    bound: Bound


def best_time(cost: OperationCost, roofs: Roofs) -> BestTime:
    arithmetic_s = cost.flops / roofs.peak(cost.operation.unit)
    memory_s = cost.bytes / roofs.bandwidth_bytes_per_s
    if arithmetic_s > memory_s:
        return BestTime(seconds=arithmetic_s, bound="arithmetic")
    return BestTime(seconds=memory_s, bound="memory")


def best_step_s(costs: Iterable[OperationCost], roofs: Roofs, load: StepLoad) -> float:
    """Returns the best seconds of a step: its operations one after another, without what need not
    be computed."""
    return sum(
        best_time(one, roofs).seconds * one.operation.computed_count(load) / one.operation.count
        for one in costs
        if one.operation.count
    )

"""Inspection: everything that the arithmetic says of a model, a workload and a machine."""

from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from paredown.cost.break_even import BATCHES, SpeculationGain, best_speculation, break_even_batch
from paredown.cost.efficiency import EFFICIENCIES, FITTED_DTYPES
from paredown.cost.memory import (
    MEMORY_SHARE,
    ModelMemory,
    generation_flops,
    kv_cache_bytes,
    max_sequences,
    missing_bytes,
    model_memory,
)
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import OperationCost, load_letters
from paredown.cost.operations import operations
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.roofline import Roofs, best_step_s, best_time
from paredown.cost.roofline_step import RooflineStep
from paredown.cost.serving import MAX_STEP_TOKENS, ServingTimes, Workload, serving_times
from paredown.cost.step_cost import StepCost, StepLoad, decode_load, prefill_load
from paredown.cost.step_fit import Calibration
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

PHASES = ("prefill", "decode")
_WIDE = {"bf16": WeightSpec(dtype="bf16"), "int8": WeightSpec(dtype="int8")}
_NARROW = WeightSpec(dtype="int4", group_size=32)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A machine: its roofs and, where our kernels were measured on it, their calibration."""

    key: str
    roofs: Roofs
    calibration: Calibration | None = None

    def knows(self, formats: ModelFormats) -> bool:
        """Whether steps with such weights were measured on it."""
        return self.calibration is not None and self.calibration.knows(formats)

    def running(self, formats: ModelFormats) -> ModelFormats:
        """The formats as they run there."""
        return replace(
            formats,
            activation_bytes=self.roofs.activation_bytes,
            short_bf16=self.calibration is not None and self.calibration.has_short_bf16,
        )

    def step_cost(self, spec: ModelSpec, formats: ModelFormats) -> PredictedStep | RooflineStep:
        """The best that is known; `basis` says what that is. Its `roofs` are those of the machine,
        but a model that fits the caches is not bound by the memory behind them, where the bandwidth
        of a buffer of its size was measured."""
        roofs = self.roofs
        if self.calibration is not None:
            predicted = PredictedStep(spec=spec, formats=formats, calibration=self.calibration)
            if self.calibration.knows(formats):
                return predicted
            roofs = roofs.with_bandwidth(self.calibration.bandwidth(predicted.weight_bytes))
        efficiency = EFFICIENCIES.get(self.key)
        return RooflineStep(spec=spec, formats=formats, roofs=roofs, efficiency=efficiency)

    def basis(self, *formats: ModelFormats) -> str:
        """What predicted times of models in these formats rest on."""
        if all(self.knows(one) for one in formats):
            return "fitted to steps measured on this machine (`paredown doctor --sweep`)"
        if self.key in EFFICIENCIES:
            linear = [one.linear for one in formats]
            others = dict.fromkeys(one.name for one in linear if one.dtype not in FITTED_DTYPES)
            found = f"shares of the roofs fitted to fp16 products ({EFFICIENCIES[self.key].source})"
            if not others:
                return found
            return f"{found}, taken over to {', '.join(others)} (not measured there)"
        return "at best, by the roofs alone: no steps were measured there with such weights"


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """See `inspect_model`. `operations` by phase, `operation_s` what they are predicted to take
    (None where nothing was measured), `best_s` the sum of their times at best, less what our
    core leaves out in the last layer, below `roofs`: those of the machine for a model of this size,
    which no prediction beats."""

    spec: ModelSpec
    formats: ModelFormats
    workload: Workload
    target: Target
    roofs: Roofs
    operations: dict[str, list[OperationCost]]
    operation_s: dict[str, list[float | None]]
    memory: ModelMemory
    flops_with_cache: float
    flops_without_cache: float
    max_sequences: int
    missing_bytes: int
    best_s: dict[str, float]
    times: ServingTimes
    break_even: dict[str, int | None]
    speculation: list[SpeculationGain]
    acceptance: float

    def as_json(self) -> dict[str, Any]:
        machine = asdict(self.target.roofs) | {
            "basis": self.target.basis(self.formats),
            "model_bandwidth_bytes_per_s": self.roofs.bandwidth_bytes_per_s,
        }
        return {
            "model": _model_json(self.spec),
            "formats": asdict(self.formats),
            "workload": asdict(self.workload),
            "machine": machine,
            "operations": {
                phase: [
                    _row(one, self.roofs) | {"predicted_s": seconds}
                    for one, seconds in zip(costs, self.operation_s[phase], strict=True)
                ]
                for phase, costs in self.operations.items()
            },
            "best_s": self.best_s,
            "memory_bytes": asdict(self.memory) | {"total": self.memory.total},
            "flops": {
                "with_kv_cache": self.flops_with_cache,
                "without_kv_cache": self.flops_without_cache,
            },
            "max_sequences": self.max_sequences,
            "missing_bytes": self.missing_bytes,
            "predicted": asdict(self.times),
            "int4_g32_break_even_batch": self.break_even,
            "speculation": {
                "acceptance": self.acceptance,
                "by_batch": [asdict(one) for one in self.speculation],
            },
        }


def inspect_model(
    spec: ModelSpec,
    formats: ModelFormats,
    workload: Workload,
    target: Target,
    *,
    acceptance: float = 0.7,
) -> Inspection:
    """Tables of both phases, memory, times and what pays. Raises ConfigError for a workload that
    the model does not take."""
    workload.check(spec)
    formats = target.running(formats)
    cost = target.step_cost(spec, formats)
    loads = phase_loads(spec, workload)
    counted = operations(spec, formats)
    costs = {
        phase: [one.at(load_letters(load, spec)) for one in counted]
        for phase, load in loads.items()
    }
    step_tokens = max(min(workload.prompt_tokens, MAX_STEP_TOKENS), workload.batch)
    memory = model_memory(
        spec,
        formats,
        batch=workload.batch,
        context=workload.context,
        step_tokens=step_tokens,
    )
    one_sequence = kv_cache_bytes(spec, formats, batch=1, context=workload.context)
    available = MEMORY_SHARE * target.roofs.memory_bytes
    new_tokens = max(1, workload.context - workload.prompt_tokens)
    context = workload.context
    return Inspection(
        spec=spec,
        formats=formats,
        workload=workload,
        target=target,
        roofs=cost.roofs,
        operations=costs,
        operation_s={
            phase: [cost.operation_s(one, loads[phase]) for one in costs[phase]] for phase in PHASES
        },
        memory=memory,
        flops_with_cache=generation_flops(
            spec, prompt_tokens=workload.prompt_tokens, new_tokens=new_tokens, with_cache=True
        ),
        flops_without_cache=generation_flops(
            spec, prompt_tokens=workload.prompt_tokens, new_tokens=new_tokens, with_cache=False
        ),
        max_sequences=max_sequences(available, memory, one_sequence),
        missing_bytes=missing_bytes(available, memory, one_sequence),
        best_s={phase: best_step_s(costs[phase], cost.roofs, loads[phase]) for phase in PHASES},
        times=serving_times(cost, workload, spec),
        break_even=_break_even(spec, formats, target, context),
        speculation=[
            best_speculation(cost, spec, batch=batch, context=context, acceptance=acceptance)
            for batch in BATCHES
        ],
        acceptance=acceptance,
    )


def phase_loads(spec: ModelSpec, workload: Workload) -> dict[str, StepLoad]:
    """A whole prompt in one step, and a step of the whole batch."""
    return {
        "prefill": prefill_load(workload.prompt_tokens, 0, spec.windows),
        "decode": decode_load(workload.batch, workload.context, spec.windows),
    }


def _break_even(
    spec: ModelSpec, formats: ModelFormats, target: Target, context: int
) -> dict[str, int | None]:
    """int4-g32 against wider weights, the output layer as it is."""

    def cost(weights: WeightSpec) -> StepCost:
        return target.step_cost(spec, replace(formats, linear=weights))

    narrow = cost(_NARROW)
    return {
        name: break_even_batch(narrow, cost(wide), context, spec) for name, wide in _WIDE.items()
    }


def _model_json(spec: ModelSpec) -> dict[str, Any]:
    """The spec, its layers in runs of equal ones."""
    fields = {name: value for name, value in asdict(spec).items() if name != "layers"}
    counts = {
        "num_layers": spec.num_layers,
        "layers": [
            {"count": len(list(run)), **asdict(layer)} for layer, run in groupby(spec.layers)
        ],
        "num_parameters": spec.num_parameters(),
        "num_active_parameters": spec.num_active_parameters(),
    }
    return fields | counts


def _row(cost: OperationCost, roofs: Roofs) -> dict[str, Any]:
    best = best_time(cost, roofs)
    operation = cost.operation
    return {
        "operation": operation.name,
        "count": operation.count,
        "out": str(operation.out),
        "columns": str(operation.columns),
        "flops": cost.flops,
        "bytes": cost.bytes,
        "weight_bytes": cost.weight_bytes,
        "kv_bytes": cost.kv_bytes,
        "activation_bytes": cost.activation_bytes,
        "intensity": cost.intensity,
        "unit": operation.unit,
        "bound": best.bound,
        "best_s": best.seconds,
    }

"""Inspection: everything that the cost model says about a model, a load and a machine."""

from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from paredown.cost.break_even import BATCHES, SpeculationGain, best_speculation, break_even_batch
from paredown.cost.machine_profile import MachineProfile
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
from paredown.cost.roofline import Roofs, best_step_s, best_time
from paredown.cost.serving import (
    MAX_STEP_TOKENS,
    BatchLoad,
    ServingTimes,
    answers_load,
    serving_times,
)
from paredown.cost.step_cost import StepCost, StepLoad, encoded_prompts_load, prefill_load
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

PHASES = ("prefill", "decode")
_WIDE = {"bf16": WeightSpec(dtype="bf16"), "int8": WeightSpec(dtype="int8")}
_NARROW = WeightSpec(dtype="int4", group_size=32)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The result of `inspect_model`.

    `operations` lists the operations of each phase and `operation_s` their predicted times (None
    where nothing was measured). `best_s` sums their best times, without what the core skips in the
    last layer. `roofs` are the machine's for a model of this size; no prediction beats them.
    """

    spec: ModelSpec
    formats: ModelFormats
    batch_load: BatchLoad
    machine: MachineProfile
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
        roofs = asdict(self.machine.roofs) | {
            "basis": self.machine.basis(self.formats),
            "model_bandwidth_bytes_per_s": self.roofs.bandwidth_bytes_per_s,
        }
        return {
            "model": model_json(self.spec),
            "formats": asdict(self.formats),
            "workload": asdict(self.batch_load),
            "machine": roofs,
            "operations": {
                phase: [
                    operation_row(one, self.roofs) | {"predicted_s": seconds}
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
    batch_load: BatchLoad,
    machine: MachineProfile,
    *,
    acceptance: float = 0.7,
) -> Inspection:
    """Computes the tables of both phases, memory, times and break-even points. Raises ConfigError
    for a load that the model does not take."""
    batch_load.check(spec)
    formats = machine.running(formats)
    cost = machine.step_cost(spec, formats)
    loads = phase_loads(spec, batch_load)
    counted = operations(spec, formats)
    costs = {
        phase: [one.at(load_letters(load, spec)) for one in counted]
        for phase, load in loads.items()
    }
    step_tokens = max(min(batch_load.prompt_tokens, MAX_STEP_TOKENS), batch_load.batch)
    memory = model_memory(
        spec,
        formats,
        batch=batch_load.batch,
        context=batch_load.context,
        step_tokens=step_tokens,
    )
    one_sequence = kv_cache_bytes(spec, formats, batch=1, context=batch_load.context)
    available = MEMORY_SHARE * machine.roofs.memory_bytes
    new_tokens = max(1, batch_load.context - batch_load.prompt_tokens)
    context = batch_load.context
    return Inspection(
        spec=spec,
        formats=formats,
        batch_load=batch_load,
        machine=machine,
        roofs=cost.roofs,
        operations=costs,
        operation_s={
            phase: [cost.operation_s(one, loads[phase]) for one in costs[phase]] for phase in PHASES
        },
        memory=memory,
        flops_with_cache=generation_flops(
            spec, prompt_tokens=batch_load.prompt_tokens, new_tokens=new_tokens, with_cache=True
        ),
        flops_without_cache=generation_flops(
            spec, prompt_tokens=batch_load.prompt_tokens, new_tokens=new_tokens, with_cache=False
        ),
        max_sequences=max_sequences(available, memory, one_sequence),
        missing_bytes=missing_bytes(available, memory, one_sequence),
        best_s={phase: best_step_s(costs[phase], cost.roofs, loads[phase]) for phase in PHASES},
        times=serving_times(cost, batch_load, spec),
        break_even=_break_even(spec, formats, machine, context),
        speculation=[
            best_speculation(cost, spec, batch=batch, context=context, acceptance=acceptance)
            for batch in BATCHES
        ],
        acceptance=acceptance,
    )


def phase_loads(spec: ModelSpec, batch_load: BatchLoad) -> dict[str, StepLoad]:
    """Returns the loads of a whole prompt in one step, and of a decode step of the whole batch."""
    prompt_tokens = batch_load.prompt_tokens
    return {
        "prefill": prefill_load(prompt_tokens, 0, spec.windows)
        if spec.encoder is None
        else encoded_prompts_load(1, prompt_tokens),
        "decode": answers_load(spec, batch_load),
    }


def _break_even(
    spec: ModelSpec, formats: ModelFormats, machine: MachineProfile, context: int
) -> dict[str, int | None]:
    """Compares int4-g32 with wider weights; the output layer keeps its format."""

    def cost(weights: WeightSpec) -> StepCost:
        return machine.step_cost(spec, replace(formats, linear=weights))

    narrow = cost(_NARROW)
    return {
        name: break_even_batch(narrow, cost(wide), context, spec) for name, wide in _WIDE.items()
    }


def model_json(spec: ModelSpec) -> dict[str, Any]:
    """Returns the spec with runs of equal layers grouped."""
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


def operation_row(cost: OperationCost, roofs: Roofs) -> dict[str, Any]:
    """Returns an operation of a step as JSON."""
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

"""Roofs: nothing is faster than its arithmetic or its bytes, and which of the two binds."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_specs import specs
from fakes.specs import gated
from paredown.cost.machines import MACHINES
from paredown.cost.model_formats import ModelFormats, Unit
from paredown.cost.operation import OperationCost, load_letters
from paredown.cost.operations import operations
from paredown.cost.roofline import Roofs, best_step_s, best_time
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.spec.machine import Machine
from paredown.spec.model import ModelSpec

UNITS: tuple[Unit, ...] = ("int8", "bf16", "fp32")
ROOFS = MACHINES["xeon-emr"]


def cost_of(unit: Unit, flops: float, num_bytes: float) -> OperationCost:
    operation = replace(operations(gated(), ModelFormats())[1], unit=unit, count=1)
    return OperationCost(
        operation=operation,
        flops=flops,
        weight_bytes=num_bytes / 2,
        kv_bytes=num_bytes / 4,
        activation_bytes=num_bytes / 4,
    )


@given(st.sampled_from(UNITS), st.floats(1, 1e15), st.floats(1, 1e12))
def test_the_longer_of_both_binds(unit: Unit, flops: float, num_bytes: float) -> None:
    found = best_time(cost_of(unit, flops, num_bytes), ROOFS)
    peaks = {
        "int8": ROOFS.int8_ops_per_s,
        "bf16": ROOFS.bf16_flops_per_s,
        "fp32": ROOFS.fp32_flops_per_s,
    }
    seconds = {
        "arithmetic": flops / peaks[unit],
        "memory": num_bytes / ROOFS.bandwidth_bytes_per_s,
    }
    assert found.seconds == pytest.approx(max(seconds.values()))
    assert seconds[found.bound] == pytest.approx(found.seconds)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("factor", "bound"), [(0.99, "memory"), (1.01, "arithmetic")])
def test_arithmetic_binds_from_the_ridge_on(unit: Unit, factor: float, bound: str) -> None:
    num_bytes = 1e9
    flops = factor * ROOFS.ridge(unit) * num_bytes
    assert best_time(cost_of(unit, flops, num_bytes), ROOFS).bound == bound


@given(st.floats(1, 1e13))
def test_a_cache_is_never_slower_than_memory(bytes_per_s: float) -> None:
    found = ROOFS.with_bandwidth(bytes_per_s)
    assert found.bandwidth_bytes_per_s == max(bytes_per_s, ROOFS.bandwidth_bytes_per_s)
    assert replace(found, bandwidth_bytes_per_s=ROOFS.bandwidth_bytes_per_s) == ROOFS
    for unit in UNITS:
        assert found.ridge(unit) <= ROOFS.ridge(unit)


def test_a_measured_machine_has_its_own_figures() -> None:
    machine = Machine(
        name="toy",
        isa="generic",
        num_cores=4,
        num_threads=2,
        memory_bytes=1 << 30,
        bandwidth_bytes_per_s=1e9,
        int8_ops_per_s=8e9,
        bf16_flops_per_s=4e9,
        fp32_flops_per_s=2e9,
    )
    found = asdict(Roofs.of(machine))
    assert (found.pop("source"), found.pop("activation_bytes")) == ("measured", 4)
    assert found.items() <= asdict(machine).items()


@given(specs(), st.integers(1, 60), st.integers(0, 60), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_step_at_best_leaves_out_what_nobody_asks_for(
    spec: ModelSpec, num_tokens: int, start: int, is_asked: bool
) -> None:
    """Of one layer, behind its keys and values, all tokens but those with a row of logits."""
    load = prefill_load(num_tokens, start, spec.windows)
    load = load if is_asked else replace(load, num_logits=0)
    costs = [one.at(load_letters(load, spec)) for one in operations(spec, ModelFormats())]
    total = 0.0
    for cost in costs:
        each_s = best_time(cost, ROOFS).seconds / cost.operation.count
        left_out = cost.operation.num_asked_only * (1 - load.num_logits / num_tokens)
        total += (cost.operation.count - left_out) * each_s
    assert best_step_s(costs, ROOFS, load) == pytest.approx(total)
    assert best_step_s(costs, ROOFS, load) <= sum(best_time(one, ROOFS).seconds for one in costs)
    decode = decode_load(3, start + 1, spec.windows)
    all_asked = [one.at(load_letters(decode, spec)) for one in operations(spec, ModelFormats())]
    assert best_step_s(all_asked, ROOFS, decode) == pytest.approx(
        sum(best_time(one, ROOFS).seconds for one in all_asked)
    )

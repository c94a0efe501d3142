"""An inspection: what it says fits together, and is below no roof."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.test_fit_steps import TRUTH
from fakes.random_specs import specs
from fakes.specs import changed, gated
from paredown.cost.break_even import BATCHES
from paredown.cost.inspection import PHASES, inspect_model, phase_loads
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.machines import MACHINES
from paredown.cost.memory import generation_flops
from paredown.cost.model_formats import ModelFormats
from paredown.cost.roofline import best_step_s, best_time
from paredown.cost.serving import BatchLoad
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.cost.step_fit import AttentionRates, EngineRates, LinearRates, StepRates
from paredown.formats.table import FORMATS
from paredown.plan.planned_machine import PlannedMachine
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

SPEC = gated(hidden_size=256, head_dim=64, intermediate_size=768, max_positions=4096)
INT4 = WeightSpec(dtype="int4", group_size=32)


def test_a_model_in_the_caches_has_their_roof() -> None:
    roofs = replace(TRUTH.roofs, bandwidth_bytes_per_s=1e10)
    truth = replace(TRUTH, roofs=roofs)
    profile = MachineProfile(key="this", roofs=roofs, fit=truth)
    small, large = gated(), changed(SPEC, hidden_size=8192, intermediate_size=65536)
    for linear in (INT4, WeightSpec(dtype="int2")):  # this was measured, that was not
        formats = ModelFormats(linear=linear, output=INT4)
        assert profile.step_cost(small, formats).roofs.bandwidth_bytes_per_s == 2e11
        assert profile.step_cost(large, formats).roofs.bandwidth_bytes_per_s == 2.5e10
        alone = replace(profile, fit=None)
        assert alone.step_cost(small, formats).roofs == roofs


@pytest.mark.parametrize("bandwidth", [1e10, 4e11])
def test_no_prediction_is_above_its_roof(bandwidth: float) -> None:
    """Coefficients of a sweep in the caches, that would have everything done in no time."""
    swift = LinearRates(num_tokens=(1, 64), seconds_per_mac=(1e-18, 1e-18), memory_efficiency=4.0)
    roofs = replace(TRUTH.roofs, bandwidth_bytes_per_s=bandwidth)
    truth = replace(
        TRUTH,
        roofs=roofs,
        linear={"int4-g32": swift},
        attention={"bf16": AttentionRates(key_s=0.0, pair_s=0.0)},
        rates=StepRates(step_s=0.0, layer_s=0.0, column_s=0.0),
        engine=((2e6, EngineRates()), (2e7, EngineRates())),
    )
    formats = ModelFormats(linear=INT4, output=INT4)
    profile = MachineProfile(key="this", roofs=roofs, fit=truth)
    for batch_load in (
        BatchLoad(batch=9, context=900),
        BatchLoad(prompt_tokens=2000, context=4000),
    ):
        found = inspect_model(SPEC, formats, batch_load, profile)
        assert found.times.ttft_s >= found.best_s["prefill"] * (1 - 1e-9)
        assert found.times.tpot_s >= found.best_s["decode"] * (1 - 1e-9)
        for phase, costs in found.operations.items():
            for cost, seconds in zip(costs, found.operation_s[phase], strict=True):
                assert seconds is None or seconds >= best_time(cost, found.roofs).seconds


def test_an_inspection_counts_on_the_memory_that_a_plan_does() -> None:
    """Sequences of one page: as many as there are pages."""
    profile = MachineProfile(key="l4", roofs=MACHINES["l4"])
    batch_load = BatchLoad(batch=8192, prompt_tokens=512, context=PAGE_SIZE)
    found = inspect_model(SPEC, ModelFormats(), batch_load, profile)
    sizes = {"max_running": 8192, "max_step_tokens": 8192}
    pages = PlannedMachine(profile=profile).num_pages(SPEC, found.formats, **sizes)
    assert found.max_sequences == pages


def test_an_inspection_names_what_its_times_rest_on() -> None:
    formats = ModelFormats(linear=INT4, output=INT4)
    batch_load = BatchLoad(batch=2, prompt_tokens=64, context=128)
    measured = MachineProfile(key="this", roofs=TRUTH.roofs, fit=TRUTH)
    known = inspect_model(SPEC, formats, batch_load, measured)
    assert "doctor --sweep" in measured.basis(formats)
    assert all(
        one is not None
        for cost, one in zip(known.operations["decode"], known.operation_s["decode"], strict=True)
        if cost.flops
    )
    other = ModelFormats(linear=WeightSpec(dtype="int2"), output=INT4)
    assert "by the roofs alone" in measured.basis(other)
    unknown = inspect_model(SPEC, other, batch_load, measured)
    assert set(unknown.operation_s["decode"]) == {None}
    gpu = MachineProfile(key="h100", roofs=MACHINES["h100"])
    for weights in ("bf16", "fp16"):
        fitted = gpu.basis(ModelFormats(linear=FORMATS[weights]))
        assert fitted.endswith("fitted to fp16 products (microsoft/vidur, MLP profiles, H100)")
    assert "taken over to int4-g32 (not measured there)" in gpu.basis(ModelFormats(), formats)


@given(specs(), st.integers(1, 64), st.sampled_from(["h100", "xeon-emr", "this"]))
@settings(max_examples=15, deadline=None)
def test_an_inspection_of_any_model_fits_together(spec: ModelSpec, batch: int, key: str) -> None:
    """In numbers that JSON has, whose parts are the whole, for layers that differ too."""
    batch_load = BatchLoad(
        batch=batch, prompt_tokens=spec.max_positions, context=spec.max_positions
    )
    fit = TRUTH if key == "this" else None
    profile = MachineProfile(key=key, roofs=MACHINES.get(key, TRUTH.roofs), fit=fit)
    found = inspect_model(spec, ModelFormats(linear=INT4), batch_load, profile)
    told = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert set(told["operations"]) == set(PHASES)
    memory = dict(told["memory_bytes"])
    assert memory.pop("total") == sum(memory.values())
    loads = phase_loads(spec, batch_load)
    for phase, costs in found.operations.items():
        assert found.best_s[phase] == best_step_s(costs, found.roofs, loads[phase])
    assert found.flops_with_cache <= found.flops_without_cache
    assert found.times.tpot_s * (1 + 1e-9) >= found.best_s["decode"]
    assert (found.max_sequences == 0) == (found.missing_bytes > 0)
    assert [one.batch for one in found.speculation] == list(BATCHES)
    assert all(one.gain >= 1 for one in found.speculation)
    for row, cost in zip(told["operations"]["decode"], found.operations["decode"], strict=True):
        assert row["bytes"] == row["weight_bytes"] + row["kv_bytes"] + row["activation_bytes"]
        assert row["best_s"] == best_time(cost, found.roofs).seconds


def test_phases_are_a_whole_prompt_and_a_whole_batch() -> None:
    batch_load = BatchLoad(batch=5, prompt_tokens=40, context=60)
    loads = phase_loads(gated(sliding_window=9), batch_load)
    assert loads == {"prefill": prefill_load(40, 0, (9,)), "decode": decode_load(5, 60, (9,))}
    assert set(loads) == set(PHASES)


def test_formats_run_as_the_machine_has_them() -> None:
    gpu, ours = (
        MachineProfile(key="h100", roofs=MACHINES["h100"]),
        MachineProfile(key="this", roofs=TRUTH.roofs),
    )
    assert gpu.running(ModelFormats()).activation_bytes == 2
    assert ours.running(ModelFormats()).activation_bytes == 4
    for isa, is_short in (("avx2", True), ("amx", False)):
        measured = replace(ours, fit=replace(TRUTH, isa=isa))
        assert measured.running(ModelFormats()).short_bf16 == is_short
    assert not ours.running(ModelFormats()).short_bf16


def test_arithmetic_is_that_of_an_answer_up_to_the_context() -> None:
    """Of one token at least, where the context is no longer than the prompt."""
    profile = MachineProfile(key="h100", roofs=MACHINES["h100"])
    for prompt, context, new in ((40, 60, 20), (60, 60, 1), (60, 40, 1)):
        load = BatchLoad(prompt_tokens=prompt, context=context)
        found = inspect_model(SPEC, ModelFormats(), load, profile)
        sizes = {"prompt_tokens": prompt, "new_tokens": new}
        assert found.flops_with_cache == generation_flops(SPEC, **sizes, with_cache=True)
        assert found.flops_without_cache == generation_flops(SPEC, **sizes, with_cache=False)

"""Times of a prompt and a batch, and where methods stop paying, on made-up machines."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.specs import changed, gated, silu_experts
from paredown.cost.break_even import (
    MAX_BATCH,
    best_speculation,
    break_even_batch,
    verify_load,
)
from paredown.cost.efficiency import EFFICIENCIES
from paredown.cost.inspection import inspect_model
from paredown.cost.machine_file import find_step_fit, need_step_fit, save_step_fit
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.machines import MACHINES, find_machine
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import load_letters
from paredown.cost.operations import operations
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.roofline import best_step_s, best_time
from paredown.cost.roofline_step import RooflineStep
from paredown.cost.serving import BatchLoad, prompt_steps, serving_times, ttft_s
from paredown.cost.step_cost import StepLoad, chunk_pairs, decode_load, prefill_load
from paredown.cost.step_fit import AttentionRates, EngineRates, LinearRates, StepRates
from paredown.errors import ConfigError, OutputError
from paredown.formats.table import FORMATS
from paredown.plan.planned_machine import PlannedMachine
from paredown.spec.kv import PAGE_SIZE, KVDType
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

SPEC = gated(hidden_size=256, head_dim=64, intermediate_size=768, max_positions=4096)
INT4 = WeightSpec(dtype="int4", group_size=32)


@dataclass(frozen=True)
class PerToken:
    """A second for each token, and `fixed` for each step."""

    fixed: float = 0.0

    def step_s(self, step: StepLoad) -> float:
        return self.fixed + step.num_tokens


@pytest.mark.parametrize("length", [1, 511, 512, 513, 2000])
@pytest.mark.parametrize("window", [None, 100])
def test_a_prompt_is_cut_as_the_engine_cuts_it(length: int, window: int | None) -> None:
    spec = changed(SPEC, sliding_window=window)
    steps = prompt_steps(spec, length)
    assert [one.num_tokens for one in steps] == [512] * (length // 512) + (
        [length % 512] if length % 512 else []
    )
    assert [one.num_logits for one in steps] == [0] * (len(steps) - 1) + [1]
    assert sum(one.attention_pairs for one in steps) == chunk_pairs(0, length)
    if window is not None:
        assert sum(one.windowed_pairs[0] for one in steps) == chunk_pairs(0, length, window)
    assert ttft_s(PerToken(1.0), spec, length) == length + len(steps)


def test_rates_are_tokens_over_seconds() -> None:
    times = serving_times(PerToken(2.0), BatchLoad(batch=6, prompt_tokens=8, context=9), SPEC)
    assert times.ttft_s == 10
    assert times.tpot_s == 8
    assert times.decode_tokens_per_s == 6 / 8
    assert times.prefill_tokens_per_s == 8 / 10


@pytest.mark.parametrize("field", ["batch", "prompt_tokens", "context"])
@pytest.mark.parametrize("value", [0, -3, 10**10])
def test_an_absurd_workload_is_refused(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=field.replace("_", "-")):
        BatchLoad(**{field: value})


def test_a_workload_beyond_the_context_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"5,000 tokens, 4,096 positions"):
        BatchLoad(context=5000).check(SPEC)


def roofline(weights: WeightSpec, machine: str = "xeon-emr") -> RooflineStep:
    formats = ModelFormats(linear=weights, output=weights)
    return RooflineStep(spec=SPEC, formats=formats, roofs=MACHINES[machine], efficiency=None)


@given(
    tokens=st.integers(1, 600),
    start=st.integers(0, 3000),
    machine=st.sampled_from(sorted(MACHINES)),
)
@settings(max_examples=25, deadline=None)
def test_a_step_at_best_is_the_sum_of_its_operations(tokens: int, start: int, machine: str) -> None:
    """And a machine's share of its roofs is never better than that."""
    roofs, formats, load = MACHINES[machine], ModelFormats(linear=INT4), prefill_load(tokens, start)
    costs = [one.at(load_letters(load, SPEC)) for one in operations(SPEC, formats)]
    best = RooflineStep(spec=SPEC, formats=formats, roofs=roofs, efficiency=None)
    assert best.step_s(load) == pytest.approx(best_step_s(costs, roofs, load))
    real = RooflineStep(spec=SPEC, formats=formats, roofs=roofs, efficiency=EFFICIENCIES["h100"])
    assert real.step_s(load) >= best.step_s(load)
    parts = [real.operation_s(one, load) for one in costs]
    assert sum(one for one in parts if one is not None) == pytest.approx(real.step_s(load))


@given(batch=st.integers(1, 200), context=st.integers(1, 4000), more=st.integers(1, 50))
@settings(max_examples=25, deadline=None)
def test_steps_take_longer_in_larger_batches_and_longer_contexts(
    batch: int, context: int, more: int
) -> None:
    cost = roofline(INT4)
    base = cost.step_s(decode_load(batch, context))
    assert cost.step_s(decode_load(batch + more, context)) >= base
    assert cost.step_s(decode_load(batch, context + more)) >= base


def test_four_bits_stop_paying_where_arithmetic_takes_over() -> None:
    narrow, wide = roofline(INT4), roofline(WeightSpec(dtype="int8"))
    batch = break_even_batch(narrow, wide, 128, SPEC)
    assert batch is not None

    def gain(number: int) -> float:
        load = decode_load(number, 128)
        return wide.step_s(load) / narrow.step_s(load)

    assert gain(1) > 1.2
    assert gain(batch) < 1.05 <= gain(batch - 1)


def test_what_always_pays_has_no_break_even() -> None:
    assert break_even_batch(PerToken(), PerToken(10.0 * MAX_BATCH), 8, SPEC) is None


def test_speculation_pays_where_a_token_more_costs_little() -> None:
    free = best_speculation(PerToken(1e6), SPEC, batch=1, context=64, acceptance=0.5)
    assert free.num_draft_tokens == 16
    assert free.gain == pytest.approx(2.0, rel=1e-3)  # 1 / (1 - acceptance)
    dear = best_speculation(PerToken(), SPEC, batch=1, context=64, acceptance=0.9)
    assert (dear.num_draft_tokens, dear.gain) == (0, 1.0)


def test_a_verifying_step_is_a_chunk_of_each_sequence() -> None:
    load = verify_load(3, 10, 2, ())
    assert load.attention_pairs == 3 * (10 + 11 + 12)
    assert (load.num_tokens, load.num_logits, load.kv_tokens_read) == (9, 9, 3 * 12)


@pytest.mark.parametrize(("name", "alike"), [("fp16", "bf16"), ("fp8-g128", "fp8")])
def test_a_gpu_multiplies_two_byte_floats_at_their_own_peak(name: str, alike: str) -> None:
    """Our core takes such weights in float32; a GPU does not. There only float32 itself is slow."""
    load, roofs = prefill_load(512), MACHINES["h100"]

    def step_s(weights: str, activation_bytes: int) -> float:
        linear = FORMATS[weights]
        formats = ModelFormats(linear=linear, output=linear, activation_bytes=activation_bytes)
        return RooflineStep(spec=SPEC, formats=formats, roofs=roofs, efficiency=None).step_s(load)

    assert step_s(name, 2) == pytest.approx(step_s(alike, 2), rel=0.02)
    assert step_s("fp32", 2) > 2 * step_s(name, 2)
    assert step_s(name, 4) > 2 * step_s(alike, 4)


def test_machines_have_sources_and_sane_roofs() -> None:
    for roofs in MACHINES.values():
        assert roofs.source.startswith("https://")
        assert 100e9 < roofs.bandwidth_bytes_per_s < 10e12
        assert roofs.int8_ops_per_s >= roofs.bf16_flops_per_s > roofs.fp32_flops_per_s
    assert set(EFFICIENCIES) <= set(MACHINES)


def test_an_unknown_machine_lists_ours() -> None:
    with pytest.raises(ConfigError, match=r"abacus.*this.*h100.*graviton4"):
        find_machine("abacus")
    assert find_machine(" H100 ") is MACHINES["h100"]


def test_a_calibration_is_kept_for_its_machine_alone(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cost.test_calibrate import TRUTH

    monkeypatch.setenv("PAREDOWN_CACHE", str(tmp_path))
    name = TRUTH.roofs.name
    assert find_step_fit(name, "amx", 2) is None
    path = save_step_fit(TRUTH)
    assert find_step_fit(name, "amx", 2) == TRUTH
    assert find_step_fit(name, "amx", 4) is None
    with pytest.raises(ConfigError, match=r"doctor --sweep"):
        need_step_fit(name, "avx2", 2)
    path.write_text("{}")
    assert find_step_fit(name, "amx", 2) is None
    path.write_text("no JSON")
    assert find_step_fit(name, "amx", 2) is None
    monkeypatch.setenv("PAREDOWN_CACHE", str(path))
    with pytest.raises(OutputError, match="could not be written"):
        save_step_fit(TRUTH)


def test_experts_are_predicted_by_the_tokens_each_has() -> None:
    """A mixture of which all experts are asked costs at most what a dense MLP of its size does with
    as many tokens, and more than one with its share of them."""
    from cost.test_calibrate import TRUTH

    experts = silu_experts(num=4, num_per_token=1, size=192, is_normalized=True)
    moe, load = changed(SPEC, experts=experts), decode_load(64, 16)
    formats = ModelFormats(linear=INT4, output=INT4)

    def linear_s(spec: ModelSpec) -> float:
        cost = PredictedStep(spec=spec, formats=formats, fit=TRUTH)
        return cost.linear_s(load.num_tokens, load.num_logits)

    assert linear_s(changed(SPEC, intermediate_size=192)) < linear_s(moe) < linear_s(SPEC)
    cost = PredictedStep(spec=moe, formats=formats, fit=TRUTH)
    costs = [one.at(load_letters(load, moe)) for one in operations(moe, formats)]
    linear = [one for one in costs if one.operation.kind != "attention" and one.flops]
    parts = [cost.operation_s(one, load) for one in linear if one.operation.name != "router"]
    total = sum(one for one in parts if one is not None)
    assert total == pytest.approx(linear_s(moe), rel=1e-6)


def test_layers_of_several_kinds_attend_together() -> None:
    """Windowed and not, in two formats: the operations add up to the whole, and with all layers
    alike to what one format gives."""
    from cost.test_calibrate import TRUTH

    rates = {"bf16": TRUTH.attention["bf16"], "int8": AttentionRates(key_s=1e-10, pair_s=2e-12)}
    truth = replace(TRUTH, attention=rates)
    spec = changed(SPEC, num_layers=4, sliding_window=100, full_layers=(1, 3))
    dtypes: tuple[KVDType, ...] = tuple(
        "int8" if layer < 3 else "bf16" for layer in range(spec.num_layers)
    )
    load = decode_load(3, 500, spec.windows)
    mixed = ModelFormats(kv_dtype=dtypes)
    cost = PredictedStep(spec=spec, formats=mixed, fit=truth)
    letters = load_letters(load, spec)
    found = [one.at(letters) for one in operations(spec, mixed) if one.kind == "attention"]
    names = [one.operation.name for one in found if one.operation.name.startswith("scores")]
    assert names == ["scores, bf16", "scores, int8", "scores, window, int8"]
    total = sum(cost.operation_s(one, load) or 0.0 for one in found)
    assert total == pytest.approx(cost.attention_s(load))
    alike = {
        name: PredictedStep(spec=spec, formats=ModelFormats(kv_dtype=name), fit=truth)
        for name in ("bf16", "int8")
    }
    ends = sorted(one.attention_s(load) for one in alike.values())
    assert ends[0] < cost.attention_s(load) < ends[1]
    assert mixed.kv_name == f"3 int8 + {spec.num_layers - 3} bf16"
    assert truth.knows(mixed)
    assert not TRUTH.knows(mixed)


def test_a_model_in_the_caches_has_their_roof() -> None:
    from cost.test_calibrate import TRUTH

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
    from cost.test_calibrate import TRUTH

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
    from cost.test_calibrate import TRUTH

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


def test_of_the_last_layer_only_rows_of_logits_are_computed_behind_its_keys() -> None:
    """The best time of a long prompt on arithmetic alone, counted by hand, and of a chunk whose
    logits nobody asks for."""
    roofs = replace(MACHINES["h100"], bandwidth_bytes_per_s=1e30)
    cost = RooflineStep(spec=SPEC, formats=ModelFormats(linear=INT4), roofs=roofs, efficiency=None)
    load = prefill_load(500)
    unasked = replace(load, num_logits=0, num_first_tokens=0)
    shapes, last = SPEC.linear_shapes(0), SPEC.num_layers - 1
    rows = {role: last * 500 + (500 if role in ("q", "k", "v") else 0) for role in shapes}
    macs = sum(rows[role] * out * inner for role, (out, inner) in shapes.items())
    pairs = 2 * last * load.attention_pairs * SPEC.layers[0].attention.query_size
    peaks = {one.name: roofs.peak(one.unit) for one in operations(SPEC, cost.formats)}
    expected_s = 2 * macs / peaks["up"] + 2 * pairs / peaks["scores"]
    assert cost.step_s(unasked) == pytest.approx(expected_s, rel=1e-6)
    assert expected_s < cost.step_s(load) < 1.1 * expected_s


def test_what_the_last_layer_attends_to() -> None:
    load = prefill_load(100, 50)
    assert load.last_layer.attention_pairs == load.last_layer.kv_tokens_read == 150
    chunk = replace(load, num_logits=0)
    assert chunk.last_layer.attention_pairs == chunk.last_layer.kv_tokens_read == 0
    scored = replace(load, num_logits=100)
    assert scored.last_layer == scored
    decode = decode_load(8, 30)
    assert decode.last_layer == decode

"""Steps of a machine that was not measured: the sum of their operations, by its roofs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_specs import specs
from fakes.specs import gated
from paredown.cost.efficiency import EFFICIENCIES
from paredown.cost.machines import MACHINES
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import load_letters
from paredown.cost.operations import operations
from paredown.cost.roofline import best_step_s
from paredown.cost.roofline_step import RooflineStep
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.formats.table import FORMATS
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

SPEC = gated(hidden_size=256, head_dim=64, intermediate_size=768, max_positions=4096)
INT4 = WeightSpec(dtype="int4", group_size=32)


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


@given(
    specs(),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_any_model_takes_what_its_operations_take(
    spec: ModelSpec, chunks: list[tuple[int, int]], is_real: bool, is_asked: bool
) -> None:
    """One after the other, each counted anew; the sum is the same when it is asked for again."""
    loads = [prefill_load(length, start, spec.windows) for start, length in chunks]
    loads = loads if is_asked else [replace(one, num_logits=0) for one in loads]
    formats, roofs = ModelFormats(linear=INT4, kv_dtype="int8"), MACHINES["h100"]
    efficiency = EFFICIENCIES["h100"] if is_real else None
    cost = RooflineStep(spec=spec, formats=formats, roofs=roofs, efficiency=efficiency)
    for load in (*loads, *loads):
        expected = 0.0
        for one in operations(spec, formats):
            letters = load_letters(load, spec)
            arithmetic_s = one.flops.value(letters) / roofs.peak(one.unit)
            memory_s = one.bytes.value(letters) / roofs.bandwidth_bytes_per_s
            if efficiency is None:
                expected += one.computed_count(load) * max(arithmetic_s, memory_s)
            else:
                expected += one.count * efficiency.seconds(arithmetic_s, memory_s)
        assert cost.step_s(load) == pytest.approx(expected, rel=1e-9)
        for one in operations(spec, formats):
            parts = cost.operation_s(one.at(load_letters(load, spec)), load)
            assert (parts is None) == (efficiency is None)

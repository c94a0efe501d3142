"""Predicted steps: parts that add up to the whole, and nothing below the roofs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.test_fit_steps import BF16, TRUTH, model
from fakes.random_specs import specs
from fakes.specs import changed, gated, silu_experts
from paredown.cost.alike import attention_layers, mlp_columns
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import load_letters
from paredown.cost.operations import operations
from paredown.cost.predicted_step import PredictedStep, keys_and_pairs
from paredown.cost.roofline_step import RooflineStep
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.cost.step_fit import AttentionRates
from paredown.spec.kv import KVDType
from paredown.spec.model import ModelSpec
from paredown.spec.weight import SHORT_BF16_BITS, WeightSpec

SPEC = gated(hidden_size=256, head_dim=64, intermediate_size=768, max_positions=4096)
INT4 = WeightSpec(dtype="int4", group_size=32)


def test_experts_are_predicted_by_the_tokens_each_has() -> None:
    """A mixture of which all experts are asked costs at most what a dense MLP of its size does with
    as many tokens, and more than one with its share of them."""
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


def test_bf16_is_counted_as_the_set_packs_it() -> None:
    """Shorter where the core gives exponents short, and by the roofs no slower for it."""
    short = replace(TRUTH, isa="avx512_bf16")
    step = {}
    for truth in (TRUTH, short):
        formats = ModelFormats(linear=BF16, output=INT4)
        step[truth.isa] = PredictedStep(spec=model(768, 4), formats=formats, fit=truth)
    output_bytes = 512 * 768 * 4.5 / 8
    plain_bytes = step["amx"].weight_bytes - output_bytes
    short_bytes = step["avx512_bf16"].weight_bytes - output_bytes
    assert short_bytes / plain_bytes == pytest.approx(SHORT_BF16_BITS / 16)
    assert step["avx512_bf16"].step_s(decode_load(1, 8)) < step["amx"].step_s(decode_load(1, 8))


@given(specs(), st.integers(1, 30), st.integers(0, 20), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_last_layer_computes_rows_of_logits_behind_its_keys(
    spec: ModelSpec, num_tokens: int, start: int, is_asked: bool
) -> None:
    """Products of every layer, one token after the other; of experts as many as a token asks."""
    cost = PredictedStep(spec=spec, formats=ModelFormats(), fit=TRUTH)
    load = prefill_load(num_tokens, start, spec.windows)
    load = load if is_asked else replace(load, num_logits=0)
    macs = columns = 0
    for number, layer in enumerate(spec.layers):
        is_last = number == spec.num_layers - 1
        rows = load.num_logits if is_last else num_tokens
        for role, (out, inner) in layer.active_shapes(spec.hidden_size).items():
            macs += out * inner * (num_tokens if role in ("q", "k", "v") else rows)
        heads = 2 * layer.attention.query_size + 2 * layer.attention.kv_size
        columns += rows * (2 * spec.hidden_size + heads + mlp_columns(layer))
    assert cost.linear_macs(num_tokens, load.num_logits) == pytest.approx(macs)
    assert cost.layer_columns(load) == columns


@given(specs(), st.integers(1, 30), st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_a_step_is_its_parts_and_never_below_the_roofs(
    spec: ModelSpec, num_tokens: int, start: int
) -> None:
    cost = PredictedStep(spec=spec, formats=ModelFormats(), fit=TRUTH)
    load, rates = prefill_load(num_tokens, start, spec.windows), TRUTH.rates
    parts = rates.step_s + spec.num_layers * rates.layer_s
    parts += cost.layer_columns(load) * rates.column_s + spec.vocab_size * rates.logit_s
    parts += cost.linear_s(num_tokens, 1) + cost.attention_s(load)
    assert cost.fitted_s(load) == pytest.approx(parts)
    alone = replace(cost, with_engine=False)
    roof = RooflineStep(
        spec=spec, formats=ModelFormats(), roofs=cost.roofs, efficiency=None
    ).step_s(load)
    assert alone.step_s(load) == pytest.approx(max(parts, roof))
    engine_s = TRUTH.engine_rates(cost.weight_bytes).seconds(load, spec.vocab_size)
    assert cost.step_s(load) == pytest.approx(alone.step_s(load) + engine_s)


@given(specs())
@settings(max_examples=40, deadline=None)
def test_a_step_reads_all_weights_but_tables_and_routers(spec: ModelSpec) -> None:
    cost = PredictedStep(spec=spec, formats=ModelFormats(linear=INT4), fit=TRUTH)
    num_bytes = 2.0 * spec.vocab_size * spec.hidden_size
    for layer in spec.layers:
        for out, inner in layer.linear_shapes(spec.hidden_size).values():
            num_bytes += float(out * inner * ModelFormats().weight_bytes(INT4, inner))
    assert cost.weight_bytes == pytest.approx(num_bytes, rel=1e-6)


@given(specs(), st.integers(1, 20), st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_keys_and_pairs_are_those_of_the_layers_that_attend_alike(
    spec: ModelSpec, num_tokens: int, start: int
) -> None:
    load = prefill_load(num_tokens, start, spec.windows)
    found = [keys_and_pairs(load, one) for one in attention_layers(spec, ModelFormats())]
    keys = pairs = 0
    for number, layer in enumerate(spec.layers):
        step = load.last_layer if number == spec.num_layers - 1 else load
        window = layer.attention.window
        if window is None:
            keys, pairs = keys + step.kv_tokens_read, pairs + step.attention_pairs
        else:
            place = spec.windows.index(window)
            keys += step.windowed_kv_tokens_read[place]
            pairs += step.windowed_pairs[place]
    assert sum(one for one, _ in found) == keys
    assert sum(one for _, one in found) == pairs


def test_attention_takes_its_arithmetic_or_its_bytes() -> None:
    """By hand, for three layers alike."""
    load = decode_load(2, 50)
    spec, rates = gated(), TRUTH.attention["bf16"]
    cost = PredictedStep(spec=spec, formats=ModelFormats(), fit=TRUTH)
    computed = 3 * 100 * (16 * rates.key_s + 32 * rates.pair_s)
    num_bytes = 3 * 100 * 2 * 16 * 2
    read = num_bytes / TRUTH.bandwidth(cost.weight_bytes + num_bytes)
    assert cost.attention_s(load) == pytest.approx(max(computed, read))
    slow = replace(TRUTH, bandwidths=((1e6, 1.0), (1e8, 1.0)))
    slow_cost = replace(cost, fit=slow)
    assert slow_cost.attention_s(load) == pytest.approx(num_bytes)

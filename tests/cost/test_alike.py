"""Layers that are alike: each is in one kind, and kinds tell what they differ in."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_specs import layers, specs
from fakes.specs import gated
from paredown.cost.alike import (
    attention_layers,
    dense_layers,
    expert_layers,
    mlp_columns,
    projections,
)
from paredown.cost.model_formats import ModelFormats
from paredown.errors import ConfigError
from paredown.spec.experts import Experts
from paredown.spec.kv import KV_DTYPES
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec


@given(specs())
@settings(max_examples=80, deadline=None)
def test_every_layer_is_in_one_kind(spec: ModelSpec) -> None:
    num_experts = sum(layer.has_experts for layer in spec.layers)
    assert sum(one.count for one in projections(spec)) == spec.num_layers
    assert sum(one.count for one in expert_layers(spec)) == num_experts
    assert sum(one.count for one in dense_layers(spec)) == spec.num_layers - num_experts
    for kinds in (projections(spec), [*dense_layers(spec), *expert_layers(spec)]):
        assert [one.has_last for one in kinds].count(True) == 1
    assert [one.part for one in expert_layers(spec)] == list(spec.expert_kinds)
    last = spec.layers[-1].mlp
    for one in (*dense_layers(spec), *expert_layers(spec)):
        assert one.has_last == (one.part == last)
        assert one.count == sum(layer.mlp == one.part for layer in spec.layers)


@given(specs())
@settings(max_examples=80, deadline=None)
def test_a_kind_has_the_sizes_of_its_layers(spec: ModelSpec) -> None:
    sizes = [
        (layer.attention.query_size, layer.attention.kv_size, layer.attention.head_dim)
        for layer in spec.layers
    ]
    for one in projections(spec):
        own = (one.part.query_size, one.part.kv_size, one.part.head_dim)
        assert one.count == sizes.count(own)
        assert one.has_last == (sizes[-1] == own)


@given(specs(), st.data())
@settings(max_examples=80, deadline=None)
def test_layers_that_attend_alike_see_as_much_in_the_same_format(
    spec: ModelSpec, data: st.DataObject
) -> None:
    dtypes = tuple(data.draw(st.sampled_from(KV_DTYPES[:2])) for _ in spec.layers)
    found = attention_layers(spec, ModelFormats(kv_dtype=dtypes))
    assert sum(one.count for one in found) == spec.num_layers
    assert len({one.suffix for one in found}) == len(found), "names tell them apart"
    kinds = [
        (layer.attention.window, dtype, layer.attention.query_size, layer.attention.kv_size)
        for layer, dtype in zip(spec.layers, dtypes, strict=True)
    ]
    for one in found:
        window = None if one.window_number is None else spec.windows[one.window_number]
        own = (window, one.kv_dtype, one.attention.query_size, one.attention.kv_size)
        assert one.attention.window == window
        assert one.is_windowed == (window is not None)
        if len({*map(str, kinds)}) == len(found):
            assert one.count == kinds.count(own)
            assert one.has_last == (kinds[-1] == own)


@given(layers())
def test_columns_of_an_mlp_are_those_a_token_passes(layer: LayerSpec) -> None:
    active = layer.active_shapes(16)
    passed = sum(rows for role, (rows, _) in active.items() if role.rpartition(".")[2] == "up")
    assert mlp_columns(layer) == passed


def test_names_are_told_only_where_layers_differ() -> None:
    spec = gated()
    assert [one.suffix for one in projections(spec)] == [""]
    assert [one.suffix for one in attention_layers(spec, ModelFormats())] == [""]
    narrow = replace(spec.layers[0], mlp=Mlp(size=8, is_gated=True, activation="silu"))
    experts = Experts(
        num=4, num_per_token=2, size=8, is_normalized=True, is_gated=True, activation="silu"
    )
    mixed = replace(spec, layers=(narrow, *spec.layers, replace(narrow, mlp=experts)))
    assert [one.suffix for one in dense_layers(mixed)] == [", 8 columns", ", 24 columns"]
    assert [one.suffix for one in expert_layers(mixed)] == [""]
    windows = gated(sliding_window=9, full_layers=(1,))
    assert [one.suffix for one in attention_layers(windows, ModelFormats())] == ["", ", window"]


def test_each_layer_has_a_format() -> None:
    with pytest.raises(ConfigError, match="2 formats, 3 layers"):
        attention_layers(gated(), ModelFormats(kv_dtype=("bf16", "int8")))

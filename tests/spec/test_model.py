"""What a model consists of: against parameters counted one by one, and against real modules."""

from dataclasses import replace
from pathlib import Path

import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_specs import specs
from fakes.specs import gated, silu_experts
from fakes.tiny_models import VARIANTS
from paredown.models.checkpoint import Checkpoint
from paredown.spec.experts import Experts
from paredown.spec.model import LearnedPositions, ModelSpec
from references.parameters import linear_parameters, other_parameters


@given(specs())
@settings(max_examples=80, deadline=None)
def test_parameters_are_those_of_every_vector_and_matrix(spec: ModelSpec) -> None:
    linear, active = (linear_parameters(spec, active=one) for one in (False, True))
    assert spec.num_linear_parameters() == linear
    assert spec.num_active_linear_parameters() == active
    assert spec.num_parameters() == linear + other_parameters(spec)
    assert spec.num_active_parameters() == active + other_parameters(spec)
    assert spec.num_active_parameters() <= spec.num_parameters()


@pytest.mark.parametrize(
    "name",
    [
        "llama-gqa",
        "llama-tied",
        "qwen2",
        "qwen3",
        "qwen3-tied-biases",
        "gpt2",
        "opt",
        "opt-untied-no-biases",
        "mixtral",
        "qwen2-moe-every-second",
        "qwen3-moe-dense-first",
    ],
)
def test_a_checkpoint_has_as_many_numbers_as_its_spec_says(name: str, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path, torch.bfloat16, 0)
    spec, num_numbers = Checkpoint.open(tmp_path).spec, 0
    for path in tmp_path.glob("*.safetensors"):
        with safetensors.safe_open(path, "pt") as file:
            names = list(file.keys())
            num_numbers += sum(file.get_tensor(name).numel() for name in names)
    assert spec.num_parameters() == num_numbers


@given(specs())
@settings(max_examples=40, deadline=None)
def test_a_sum_over_kinds_of_layers_is_one_over_layers(spec: ModelSpec) -> None:
    assert sum(spec.layer_counts.values()) == spec.num_layers == len(spec.layers)
    assert set(spec.layer_counts) == set(spec.layers)
    alone = [replace(spec, layers=(layer,)) for layer in spec.layers]
    for count in (
        ModelSpec.num_linear_parameters,
        ModelSpec.num_active_linear_parameters,
        ModelSpec.num_router_parameters,
    ):
        assert count(spec) == sum(count(one) for one in alone)
    assert spec.is_uniform == all(layer == spec.layers[0] for layer in spec.layers)
    twice = replace(spec, layers=spec.layers * 2)
    assert twice.num_linear_parameters() == 2 * spec.num_linear_parameters()
    assert twice.num_parameters() - spec.num_parameters() == sum(
        one.num_parameters() - replace(one, layers=()).num_parameters() for one in alone
    )


@given(specs(), st.none() | st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_windows_are_told_once_and_in_order(spec: ModelSpec, window: int | None) -> None:
    own = {layer.attention.window for layer in spec.layers} - {None}
    assert list(spec.windows) == sorted(own)
    other = spec.with_window(window)
    assert other.windows == (() if window is None else (window,))
    assert other.num_parameters() == spec.num_parameters()
    assert {layer.attention.window for layer in other.layers} == {window}
    for before, after in zip(spec.layers, other.layers, strict=True):
        attention = replace(after.attention, window=before.attention.window)
        assert replace(after, attention=attention) == before


@given(specs())
@settings(max_examples=40, deadline=None)
def test_experts_are_told_by_kind(spec: ModelSpec) -> None:
    found = [layer.mlp for layer in spec.layers if isinstance(layer.mlp, Experts)]
    assert set(spec.expert_kinds) == set(found)
    assert len(spec.expert_kinds) == len(set(found))
    assert spec.has_experts == bool(found)
    assert spec.num_router_parameters() == spec.hidden_size * sum(
        one.num + (one.shared_size is not None) for one in found
    )


def test_positions_have_a_row_for_each_and_for_the_offset() -> None:
    spec = gated(max_positions=64)
    assert spec.position_shape is None
    assert spec.is_rotary
    embedding = replace(spec.embedding, positions=LearnedPositions(offset=2))
    learned = replace(spec, embedding=embedding)
    assert learned.position_shape == (66, 16)
    assert learned.num_parameters() - spec.num_parameters() == 66 * 16


def test_the_smallest_window_is_the_first() -> None:
    spec = gated()
    for windows in ((11, None, 5), (5, 11, 5), (5, 11, None)):
        layers = tuple(
            replace(layer, attention=replace(layer.attention, window=window))
            for layer, window in zip(spec.layers, windows, strict=True)
        )
        assert replace(spec, layers=layers).windows == (5, 11)


def test_only_layers_that_all_turn_are_rotary() -> None:
    spec = gated()
    still = replace(spec.layers[1], attention=replace(spec.layers[1].attention, rotary=None))
    mixed = replace(spec, layers=(spec.layers[0], still, spec.layers[2]))
    assert spec.is_rotary
    assert not mixed.is_rotary
    assert not mixed.is_uniform


def test_shapes_of_a_layer_are_those_of_its_own() -> None:
    spec = gated(
        num_layers=4,
        experts=silu_experts(num=4, num_per_token=2, size=8, is_normalized=True, step=2),
    )
    for number, layer in enumerate(spec.layers):
        assert spec.linear_shapes(number) == layer.linear_shapes(16)
        assert spec.router_shapes(number) == layer.router_shapes(16)
        assert bool(spec.router_shapes(number)) == (number % 2 == 1)

"""One layer: its linear layers, who has a bias, and which vectors there are."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from fakes.random_specs import layers
from fakes.specs import gated
from paredown.spec.experts import Experts, expert_index, role_kind, split_role
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.norm import Norm, Norms
from paredown.spec.roles import QKV_ROLES, row_groups
from references.parameters import attention_size, mlp_size, norm_size

HIDDEN = 16


def size_of(shapes: dict[str, tuple[int, int]]) -> int:
    return sum(rows * columns for rows, columns in shapes.values())


@given(layers())
@settings(max_examples=80, deadline=None)
def test_a_token_passes_from_the_hidden_state_back_to_it(layer: LayerSpec) -> None:
    """What reads a layer's input has its columns, what gives its output its rows, and what is
    between fits together."""
    shapes = layer.linear_shapes(HIDDEN)
    for role in QKV_ROLES:
        assert shapes[role][1] == HIDDEN
    assert shapes["k"] == shapes["v"]
    assert shapes["o"] == (HIDDEN, shapes["q"][0])
    assert shapes["q"][0] == layer.attention.num_heads_per_group * shapes["k"][0]
    for role, (rows, columns) in shapes.items():
        owner, own = split_role(role)
        prefix = f"{owner}." if owner else ""
        if own == "down":
            assert rows == HIDDEN
            assert columns == shapes[f"{prefix}up"][0]
        if own in ("up", "gate"):
            assert (rows, columns) == shapes[f"{prefix}up"]
            assert columns == HIDDEN


@given(layers())
@settings(max_examples=80, deadline=None)
def test_active_layers_are_some_of_all(layer: LayerSpec) -> None:
    everything, active = layer.linear_shapes(HIDDEN), layer.active_shapes(HIDDEN)
    assert active.items() <= everything.items()
    if isinstance(layer.mlp, Mlp):
        assert active == everything
        assert layer.router_shapes(HIDDEN) == {}
        assert layer.experts is None
    else:
        asked = {expert_index(role) for role in active} - {None}
        assert asked == set(range(layer.mlp.num_per_token))
        assert {expert_index(role) for role in everything} - {None} == set(range(layer.mlp.num))
        assert layer.router_shapes(HIDDEN)["router"] == (layer.mlp.num, HIDDEN)
        assert layer.experts == layer.mlp
    assert layer.has_experts == isinstance(layer.mlp, Experts)


@given(layers())
@settings(max_examples=80, deadline=None)
def test_vectors_are_its_norms_and_biases(layer: LayerSpec) -> None:
    vectors = layer.vector_sizes(HIDDEN)
    biases = attention_size(layer, HIDDEN)[1]
    if isinstance(layer.mlp, Mlp):
        biases += mlp_size(layer.mlp, HIDDEN)[1]
    assert sum(vectors.values()) == norm_size(layer, HIDDEN) + biases
    for name, size in vectors.items():
        role, part = name.rsplit(".", 1)
        if role.endswith("_norm"):
            assert size == layer.norm_sizes(HIDDEN)[role]
            assert part in layer.norms.by_role()[role].parts
        else:
            assert part == "bias"
            assert size == layer.linear_shapes(HIDDEN)[role][0]
            assert layer.has_bias(role)


@given(layers())
@settings(max_examples=40, deadline=None)
def test_no_expert_has_a_bias(layer: LayerSpec) -> None:
    for role in layer.linear_shapes(HIDDEN):
        if split_role(role)[0]:
            assert not layer.has_bias(role)
    if isinstance(layer.mlp, Experts):
        assert not layer.has_bias("up")


@given(layers())
@settings(max_examples=40, deadline=None)
def test_every_linear_layer_is_in_one_group(layer: LayerSpec) -> None:
    """Whose members read the same input."""
    shapes = layer.linear_shapes(HIDDEN)
    groups = row_groups(list(shapes))
    assert sorted(role for members in groups.values() for role in members) == sorted(shapes)
    for group, members in groups.items():
        assert len({shapes[role][1] for role in members}) == 1
        assert len({split_role(role)[0] for role in members}) == 1
        assert split_role(group)[1] in ("qkv", "o", "up", "down")


@pytest.mark.parametrize(
    ("role", "owner", "own", "index", "kind"),
    [
        ("q", "", "q", None, "q"),
        ("experts.12.gate", "experts.12", "gate", 12, "experts.gate"),
        ("shared.down", "shared", "down", None, "shared.down"),
        ("experts.gate", "experts", "gate", None, "experts.gate"),
    ],
)
def test_a_role_is_the_way_to_a_layer(
    role: str, owner: str, own: str, index: int | None, kind: str
) -> None:
    assert split_role(role) == (owner, own)
    assert expert_index(role) == index
    assert role_kind(role) == kind


def test_groups_of_experts_are_under_their_owners() -> None:
    groups = row_groups(["q", "k", "v", "o", "experts.3.up", "experts.3.gate", "experts.3.down"])
    assert groups == {
        "qkv": ("q", "k", "v"),
        "o": ("o",),
        "experts.3.up": ("experts.3.gate", "experts.3.up"),
        "experts.3.down": ("experts.3.down",),
    }
    assert row_groups(["up", "down"]) == {"up": ("up",), "down": ("down",)}


def test_norms_are_called_by_their_place() -> None:
    rms, layer_norm = Norm(kind="rms", eps=1e-5), Norm(kind="layer", eps=1e-5)
    norms = Norms(attention=rms, k=layer_norm, mlp_output=rms)
    assert norms.by_role() == {
        "attention_norm": rms,
        "k_norm": layer_norm,
        "mlp_output_norm": rms,
    }
    assert (rms.parts, layer_norm.parts) == (("weight",), ("weight", "bias"))
    (layer,) = {*gated().layers}
    only = replace(layer, norms=norms)
    assert only.norm_sizes(HIDDEN) == {
        "attention_norm": 16,
        "k_norm": layer.attention.head_dim,
        "mlp_output_norm": 16,
    }

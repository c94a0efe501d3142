"""A mixture of experts: who is there, what each is, and what decides between them."""

from dataclasses import replace

from hypothesis import given, settings

from fakes.random_specs import MLPS, experts
from paredown.spec.experts import SHARED, Experts, expert_index, split_role
from paredown.spec.mlp import Mlp


@given(experts())
@settings(max_examples=60, deadline=None)
def test_all_experts_are_there_and_each_is_an_mlp(found: Experts) -> None:
    shapes = found.shapes(16)
    assert {split_role(role)[0] for role in shapes} == set(found.owners)
    for owner in found.owners:
        prefix = f"{owner}."
        own = {
            role.removeprefix(prefix): one
            for role, one in shapes.items()
            if role.startswith(prefix)
        }
        mlp = found.shared if owner == SHARED else found.expert
        assert mlp is not None
        assert own == mlp.shapes(16)
    assert found.owners == (
        *(f"experts.{number}" for number in range(found.num)),
        *((SHARED,) if found.shared_size else ()),
    )


@given(experts())
@settings(max_examples=60, deadline=None)
def test_some_experts_are_the_first_ones_and_the_shared_one(found: Experts) -> None:
    for num in range(found.num + 1):
        some = found.shapes(16, num)
        assert {expert_index(role) for role in some} - {None} == set(range(num))
        assert any(role.startswith(SHARED) for role in some) == (found.shared_size is not None)
        assert some.items() <= found.shapes(16).items()


@given(experts())
@settings(max_examples=60, deadline=None)
def test_a_router_has_a_row_for_each_expert_and_a_gate_one_for_the_shared(found: Experts) -> None:
    shapes = found.router_shapes(16)
    assert tuple(shapes) == found.router_roles
    assert sum(rows for rows, _ in shapes.values()) == len(found.owners)
    assert {columns for _, columns in shapes.values()} == {16}
    alone = replace(found, shared_size=None)
    assert alone.shared is None
    assert alone.router_roles == ("router",)


@given(MLPS)
def test_a_gate_is_one_more_matrix_of_the_same_size(mlp: Mlp) -> None:
    shapes = mlp.shapes(16)
    assert shapes["up"] == shapes["down"][::-1] == (mlp.size, 16)
    assert set(shapes) == {*mlp.up_roles, "down"}
    assert len(shapes) == 2 + mlp.is_gated
    assert {f"experts.3.{role}": shape for role, shape in shapes.items()} == mlp.shapes(
        16, "experts.3"
    )

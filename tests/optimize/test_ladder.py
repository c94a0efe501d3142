"""Ladders of parts, and the frontier of their mixes beside trying all of them."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.compress.checked_recipe import check_recipe
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.optimize.ladder import (
    FINE,
    METHODS,
    Ladder,
    Rung,
    best_within,
    cheapest_within,
    frontier,
    make_ladder,
    mix_recipe,
    mix_words,
    probed_specs,
    search_parts,
)
from paredown.optimize.model_parts import Part
from paredown.spec.model import ModelSpec

RUNGS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=4)


def ladder(figures) -> Ladder:
    part = Part(kind="role", name="o", modules=((0, "o"),))
    rungs = tuple(Rung(spec=None, loss=float(a), read_bytes=0.0, cost=float(b)) for a, b in figures)
    return Ladder(part=part, rungs=rungs)


@given(st.lists(RUNGS, min_size=1, max_size=4), st.integers(0, 60))
@settings(max_examples=150, deadline=None)
def test_the_frontier_has_the_best_of_all_mixes(figures, limit: int) -> None:
    mixes = frontier([ladder(own) for own in figures])
    sums = [
        (sum(loss for loss, _ in one), sum(read for _, read in one)) for one in product(*figures)
    ]
    small = cheapest_within(mixes, limit)
    allowed = [read for loss, read in sums if loss <= limit]
    if allowed:
        assert (small.loss <= limit, small.cost) == (True, min(allowed))
    best = best_within(mixes, limit)
    fitting = [loss for loss, read in sums if read <= limit]
    if fitting:
        assert (best.cost <= limit, best.loss) == (True, min(fitting))


def losses_of(part: Part, spec: ModelSpec, widest: float, narrow: float, of_inputs: float = 0.0):
    """With inputs of two codes as given, with those of one by so much more."""
    return {
        own: (widest if own.bits == 8 else narrow) + (0.0 if own.activations == FINE else of_inputs)
        for own in probed_specs(part, spec)
    }


def test_losses_fall_by_four_with_a_bit_down_to_that_of_int8() -> None:
    spec = Checkpoint.open(resolve_model(None)).spec
    part = search_parts(spec)[0]
    made = make_ladder(part, spec, losses_of(part, spec, 0.01, 0.17), float_bits=16, fine_cost=1.1)
    by_name = {rung.spec.name: rung.loss for rung in made.rungs if rung.spec is not None}
    assert by_name["int8"] == by_name["int8-on-int16_group"] == 0.01
    by_size = [own.group_size for own in probed_specs(part, spec)[2:]]
    for name, loss in by_name.items():
        if not name.startswith("int8"):
            size = int(name.split("-")[1][1:])
            largest = math.log(size) / math.log(by_size[0])
            assert loss == pytest.approx(0.01 + 0.16 * largest * 4.0 ** (4 - int(name[3])))
    assert made.rungs[0].spec is None


def test_inputs_of_one_code_lose_more_in_groups_and_those_of_two_cost_more() -> None:
    spec = Checkpoint.open(resolve_model(None)).spec
    part = search_parts(spec)[0]
    losses = losses_of(part, spec, 0.01, 0.17, of_inputs=0.004)
    made = make_ladder(part, spec, losses, float_bits=16, fine_cost=1.25)
    rungs = {rung.spec.name: rung for rung in made.rungs if rung.spec is not None}
    for name, rung in rungs.items():
        if name.endswith(FINE):
            assert rung.cost == pytest.approx(1.25 * rung.read_bytes)
            continue
        fine = rungs[f"{name}-on-{FINE}"]
        assert rung.cost == rung.read_bytes == fine.read_bytes
        factor = (rung.loss - fine.loss) / 0.004
        assert factor == pytest.approx(1.0) if name == "int8" else factor > 1.5


@pytest.mark.parametrize("method", METHODS)
def test_a_mix_is_a_recipe_that_the_model_can_have(method: str) -> None:
    source = Checkpoint.open(resolve_model(None))
    spec = source.spec
    parts = search_parts(spec)
    ladders = [
        make_ladder(
            part,
            spec,
            losses_of(part, spec, 0.01 * (at + 1), 0.3, of_inputs=0.01),
            float_bits=16,
            fine_cost=1.1,
        )
        for at, part in enumerate(parts)
    ]
    mix = cheapest_within(frontier(ladders), 0.2)
    recipe = mix_recipe(mix, source, method)
    schemes = check_recipe(source, recipe).schemes
    chosen = {part.name: rung.spec for part, rung in mix.rungs}
    for part in parts:
        for layer, role in part.modules:
            name = source.names.output if layer is None else source.linear_name(role, layer)
            own = schemes.get(name)
            assert (None if own is None else own.spec) == chosen[part.name]
    assert recipe.name.startswith(f"{method}-mix-")
    assert all(part.name in mix_words(mix) for part in parts)

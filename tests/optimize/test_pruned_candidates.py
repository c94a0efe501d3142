"""Pruned candidates of a search, and what each is said to be worth."""

from dataclasses import replace

import pytest

from fakes.specs import gated
from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import RecoverStep
from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.pruned_candidates import pruned_recipes, pruned_words


def measured(name: str, kl: float, megabytes: float, speed: float) -> Measurement:
    return Measurement(
        name=name,
        linear_dtype="int8",
        bits_per_weight=8.0,
        file_bytes=round(megabytes * 1e6),
        kl_divergence=kl,
        decode_tokens_per_s=speed,
    )


PLAIN = [measured("int8", 0.01, 100, 50), measured("int4-g128", 0.1, 50, 90)]
RECIPES = {name: find_recipe(name) for name in ("int8", "int4-g128", "prune-ffn-25-int8")}


def words(*figures: float) -> str:
    found = pruned_words([*PLAIN, measured("prune-ffn-25-int8", *figures)], RECIPES)
    assert set(found) == {"prune-ffn-25-int8"}
    return found["prune-ffn-25-int8"]


def test_a_candidate_loses_to_one_that_is_nowhere_worse() -> None:
    assert words(0.3, 80, 60).startswith("loses: int4-g128 has KL 0.1000 at 50.0 MB")
    assert words(0.011, 101, 50).startswith("loses: int8 has KL 0.0100")


@pytest.mark.parametrize("figures", [(0.05, 60, 80), (0.3, 40, 100), (0.009, 120, 40)])
def test_a_candidate_that_none_beats_wins_a_place(figures: tuple[float, float, float]) -> None:
    assert words(*figures).startswith("wins a place: KL")


def test_nothing_is_said_of_what_is_not_pruned() -> None:
    assert pruned_words(PLAIN, RECIPES) == {}


def test_recipes_fit_the_model() -> None:
    spec = gated(num_layers=16)
    names = [one.name for one in pruned_recipes(spec, "-head-int8", None)]
    assert "prune-layers-2-gptq-int4-g128-g64-g32-head-int8" in names
    assert "sparsegpt-2of4-int8-head-int8" in names
    assert not any("recover" in name or "experts" in name for name in names)
    single = replace(spec, layers=spec.layers[:1])
    assert not any("layers" in one.name for one in pruned_recipes(single, "", None))
    trained = pruned_recipes(spec, "", RecoverStep(minutes=5))
    assert [one.name for one in trained if one.recover_steps] == [
        "prune-layers-2-recover-5m-gptq-int4-g128-g64-g32",
        "prune-ffn-25-recover-5m-gptq-int4-g128-g64-g32",
    ]

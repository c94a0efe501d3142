"""Recipes that remove something: their names, their files, and the stages that they take."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.compress.changed_recipe import (
    with_max_kl,
    with_max_loss,
    with_min_cosine,
    with_recovery,
)
from paredown.compress.cut.cuts import CUTS
from paredown.compress.methods import PRUNERS, REFINEMENTS
from paredown.compress.prune.pattern import NOfM, Share, find_pattern
from paredown.compress.prune.sparsegpt import SparseGPT
from paredown.compress.prune_names import PRUNER_NAMES
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_file import parse_recipe, read_recipe, write_recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import (
    CutStep,
    PruneStep,
    QuantizeStep,
    RecoverStep,
    TransformStep,
)
from paredown.errors import ConfigError
from paredown.formats.table import FORMATS

EXAMPLES = [
    "prune-ffn-25",
    "prune-ffn-25-prune-heads-25-gptq-int4-g128-g64-g32",
    "prune-layers-4-gptq-int4-g128",
    "prune-ffn-12.5-recover-500000-prune-ffn-25-recover-10m-int4-g128-head-int8",
    "magnitude-50",
    "magnitude-global-50",
    "wanda-50-int8",
    "wanda-2of4-swaps-refit-gptq-int4-g32-kv-int8",
    "wanda-sensitivity-50-awq-int4-g32",
    "wanda-90-to-0.01-int8",
    "sparsegpt-90-refit-to-kl-0.05-int8",
    "wanda-90-to-cosine-0.99-int8",
    "sparsegpt-2of4",
    "sparsegpt-8of16-gptq-int4-g128",
    "rose-50-bf16",
    "low-gradient-30-int8",
    "wanda-50-recover-100000-llm-int8",
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_name_is_a_recipe_that_a_file_can_hold(name: str, tmp_path: Path) -> None:
    recipe = find_recipe(name)
    assert recipe.name == name
    write_recipe(recipe, tmp_path / "again.yaml")
    again = read_recipe(tmp_path / "again.yaml")
    assert again.steps == recipe.steps
    assert (again.floats, again.kv_cache) == (recipe.floats, recipe.kv_cache)


@pytest.mark.parametrize("method", PRUNER_NAMES)
@pytest.mark.parametrize("pattern", ["50", "62.5", "2of4", "8of16"])
def test_every_pruner_takes_every_pattern(method: str, pattern: str) -> None:
    (step,) = find_recipe(f"{method}-{pattern}").steps
    assert isinstance(step, PruneStep)
    assert step.pattern.name == pattern


def test_every_method_has_a_name() -> None:
    assert {name.replace("-", "_") for name in PRUNER_NAMES} == {*PRUNERS, "rose"} - {"given_mask"}
    for unit in CUTS:
        (step,) = find_recipe(f"prune-{unit}-1").steps
        assert type(step.cut) is CUTS[unit]
    for refinement, kind in REFINEMENTS.items():
        (step,) = find_recipe(f"wanda-50-{refinement}").steps
        assert [type(one) for one in step.refinements] == [kind]


def test_parts_of_a_name_say_what_they_say() -> None:
    recipe = find_recipe("prune-ffn-25-rose-2of4-recover-1000-awq-gptq-int4-g128")
    cut, prune, recover, transform, quantize = recipe.steps
    assert isinstance(cut, CutStep)
    assert prune == PruneStep(pruner=SparseGPT(order="loss"), pattern=NOfM(n=2, m=4))
    assert recover == RecoverStep(num_tokens=1000)
    assert isinstance(transform, TransformStep)
    assert isinstance(quantize, QuantizeStep)
    assert recipe.linear == FORMATS["int4-g128"]
    limited = find_recipe("wanda-90-to-0.5").prune_steps[0]
    assert (limited.pattern, limited.budget, limited.max_loss) == (Share(share=0.9), "alike", 0.5)
    assert find_recipe("wanda-sensitivity-90").prune_steps[0].budget == "sensitivity"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("wanda", "not followed by what it removes"),
        ("wanda-int8", "not followed by what it removes"),
        ("wanda-100", "outside"),
        ("wanda-4of2", "keeps more weights"),
        ("wanda-0of4", "or none"),
        ("prune-nosuch-25", "not followed by a unit"),
        ("prune-ffn", "not followed by a unit"),
        ("recover-1000-int8", "before anything is removed"),
        ("wanda-50-recover-x", "tokens or minutes"),
        ("wanda-50-recover-0", "one budget"),
        ("wanda-50-recover-0m", "one budget"),
        ("wanda-2of4-to-0.1", "no share to choose"),
        ("wanda-sensitivity-2of4", "no share to choose"),
        ("wanda-global-90-to-0.1", "the budget or the loss"),
        ("wanda-50-to-0", "not a positive number"),
        ("wanda-50-to-kl-0", "not a positive number"),
        ("wanda-2of4-to-kl-0.1", "no share to choose"),
        ("wanda-global-90-to-kl-0.1", "the budget or the loss"),
        ("wanda-90-to-0.1-to-kl-0.1", "one limit alone"),
        ("wanda-90-to-kl-0.1-to-cosine-0.9", "one limit alone"),
        ("wanda-90-to-cosine-0", "such a cosine"),
        ("wanda-90-to-cosine-1", "no pruned model"),
        ("wanda-2of4-to-cosine-0.9", "no share to choose"),
        ("wanda-global-90-to-cosine-0.9", "the budget or the loss"),
        ("wanda-50-prune-ffn-25", "must precede"),
        ("wanda-50-recover-10-recover-10", "must precede"),
        ("wanda-50-kv-int8", "no such format"),
        ("nosuch-50-int8", "no such format"),
    ],
)
def test_names_that_make_no_sense(name: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        find_recipe(name)


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ({"method": "wanda"}, "step 1, pattern"),
        ({"method": "wanda", "pattern": 100}, "outside"),
        ({"method": "wanda", "pattern": True}, "step 1, pattern"),
        ({"method": "wanda", "pattern": 50, "share": 0.5}, "unknown key.*share"),
        ({"method": "wanda", "pattern": 50, "targets": "layers"}, "list of names"),
        ({"method": "wanda", "pattern": 50, "refine": ["refit", "nosuch"]}, "swaps, refit"),
        ({"method": "wanda", "pattern": 50, "budget": "even"}, "alike, global, sensitivity"),
        ({"method": "wanda", "pattern": 50, "max_loss": "much"}, "step 1, max_loss"),
        ({"method": "wanda", "pattern": 50, "max_kl": True}, "step 1, max_kl"),
        ({"method": "wanda", "pattern": 50, "max_kl": 1, "max_loss": 1}, "one limit alone"),
        ({"method": "wanda", "pattern": 50, "max_kl": float("nan")}, "not a positive number"),
        ({"method": "wanda", "pattern": 50, "min_cosine": "0.9"}, "step 1, min_cosine"),
        ({"method": "sparsegpt", "pattern": 50, "order": "random"}, "natural, loss"),
        ({"method": "recover"}, "before anything is removed|one budget"),
        ({"method": "recover", "tokens": 5, "minutes": 5}, "one budget"),
        ({"method": "recover", "tokens": 1.5}, "step 1, tokens"),
        ({"method": "recover", "hours": 5}, "unknown key.*hours"),
        ({"method": "ffn", "share": "much"}, "step 1, share"),
    ],
)
def test_steps_that_make_no_sense(step: object, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_recipe({"steps": [step]}, "x")


def test_a_recovery_ends_a_stage_and_transforms_see_what_was_pruned() -> None:
    recipe = find_recipe("prune-ffn-12-recover-10-prune-ffn-25-wanda-50-awq-int4-g32-kv-int8")
    first, second, last = recipe.stages
    assert [type(one.cut) for one in first.cuts] == [CUTS["ffn"]]
    assert (first.passes.steps, first.recover) == ((), RecoverStep(num_tokens=10))
    assert len(second.cuts) == 1
    assert [type(one) for one in second.passes.steps] == [PruneStep]
    assert second.recover is None
    assert [type(one) for one in last.passes.steps] == [TransformStep, QuantizeStep]
    assert (first.passes.kv_cache, last.passes.kv_cache) == (None, "int8")


@pytest.mark.parametrize("name", [*EXAMPLES, "int4-g128", "awq-gptq-int4-g128", "bf16"])
def test_stages_hold_every_step_once(name: str) -> None:
    recipe = find_recipe(name)
    steps = []
    for stage in recipe.stages:
        steps += [*stage.cuts, *stage.passes.steps]
        steps += [] if stage.recover is None else [stage.recover]
    assert tuple(steps) == recipe.steps
    assert recipe.stages[-1].recover is None


def test_options_change_a_recipe() -> None:
    recovered = with_recovery(find_recipe("prune-ffn-25-gptq-int4-g128"), RecoverStep(minutes=10))
    assert recovered.name == "prune-ffn-25-gptq-int4-g128-recover-10m"
    assert recovered.steps == find_recipe("prune-ffn-25-recover-10m-gptq-int4-g128").steps
    limited = with_max_loss(find_recipe("wanda-90-int8"), 0.25)
    assert limited.steps == find_recipe("wanda-90-to-0.25-int8").steps
    measured = with_max_kl(find_recipe("wanda-90-int8"), 0.25)
    assert measured.steps == find_recipe("wanda-90-to-kl-0.25-int8").steps
    assert measured.prune_steps[0].max_kl == 0.25
    near = with_min_cosine(find_recipe("wanda-90-int8"), 0.99)
    assert near.steps == find_recipe("wanda-90-to-cosine-0.99-int8").steps
    with pytest.raises(ConfigError, match="one limit alone"):
        with_max_kl(limited, 0.25)
    with pytest.raises(ConfigError, match="one limit alone"):
        with_min_cosine(limited, 0.25)
    with pytest.raises(ConfigError, match="has none"):
        with_max_kl(find_recipe("int8"), 0.25)
    with pytest.raises(ConfigError, match="removes nothing"):
        with_recovery(find_recipe("int8"), RecoverStep(minutes=10))
    with pytest.raises(ConfigError, match="recovers already"):
        with_recovery(recovered, RecoverStep(minutes=10))
    with pytest.raises(ConfigError, match="has none"):
        with_max_loss(find_recipe("prune-ffn-25"), 0.25)
    with pytest.raises(ConfigError, match="no share to choose"):
        with_max_loss(find_recipe("wanda-2of4"), 0.25)


@given(st.integers(0, 99_999))
def test_a_share_survives_its_name(thousandths: int) -> None:
    pattern = Share(share=float(Decimal(thousandths) / 100_000))
    assert find_pattern(pattern.name) == pattern


@given(st.integers(1, 64), st.integers(0, 64))
def test_n_of_m_survives_its_name(n: int, more: int) -> None:
    pattern = NOfM(n=n, m=n + more)
    assert find_pattern(pattern.name) == pattern


def test_a_recipe_without_steps_has_one_empty_stage() -> None:
    (stage,) = Recipe(name="as it is").stages
    assert (stage.cuts, stage.passes.steps, stage.recover) == ((), (), None)

"""Names and files of recipes that train codes."""

from pathlib import Path

import pytest

from paredown.compress.changed_recipe import with_training_budget
from paredown.compress.quantize.awq import AWQ
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_file import parse_recipe, read_recipe, write_recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import TrainStep
from paredown.errors import ConfigError
from paredown.formats.table import FORMATS


@pytest.mark.parametrize(
    ("name", "quantizer", "step"),
    [
        ("qad-int3-g64", GPTQ(), TrainStep()),
        ("qad-rtn-int3-g64", RTN(), TrainStep()),
        ("qad-int3-g64-500000", GPTQ(), TrainStep(num_tokens=500_000)),
        ("qat-int4-g64-2.5m", GPTQ(), TrainStep(method="qat", minutes=2.5)),
        ("gptq-int3-g64-scales", GPTQ(), TrainStep(method="scales")),
        ("int4-g64-scales-10m", RTN(), TrainStep(method="scales", minutes=10.0)),
        ("llm-qat-w4a8-kv8", RTN(), TrainStep(method="llm_qat")),
        ("llm-qat-gptq-int4-g64", GPTQ(), TrainStep(method="llm_qat", rule="learned")),
        ("qad-awq-int4-g128-head-int8-9000", GPTQ(), TrainStep(num_tokens=9000)),
        ("wanda-50-qad-int4-g128", GPTQ(), TrainStep()),
        ("prune-ffn-25-recover-10m-gptq-int4-g128-scales", GPTQ(), TrainStep(method="scales")),
    ],
)
def test_names(name: str, quantizer: object, step: TrainStep) -> None:
    recipe = find_recipe(name)
    assert recipe.name == name
    assert recipe.train_step == step
    assert {one.quantizer for one in recipe.quantize_steps} == {quantizer}
    assert recipe.stages[-1].train == step
    assert recipe.stages[-1].passes.train_step is None


def test_parts_of_names_keep_their_meaning() -> None:
    recipe = find_recipe("llm-qat-w4a8-kv8")
    assert recipe.linear == FORMATS["w4a8"]
    assert recipe.kv_cache == "int8"
    assert find_recipe("qad-awq-int4-g128").transforms == (AWQ(),)
    assert find_recipe("int4-g128-kv4").kv_cache == "int4"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("qad-bf16", "a method needs a quantized format"),
        ("bf16-scales", "quantizes nothing"),
        ("qad-int3-g64-0", "one budget"),
        ("qad-gptq-rtn-int4", "one quantizer"),
        ("qad-nothing", "no such format"),
    ],
)
def test_bad_names(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_recipe(name)


def test_a_training_is_the_last_step() -> None:
    steps = find_recipe("qad-int3-g64").steps
    with pytest.raises(ConfigError, match="must precede"):
        Recipe(name="mine", steps=(*steps, *steps))
    with pytest.raises(ConfigError, match="quantizes nothing"):
        Recipe(name="mine", steps=(TrainStep(),))
    whole, layers = find_recipe("qad-int3-g64-head-int8"), find_recipe("gptq-int3-g64")
    assert not layers.has_layers_of(whole)


def test_budgets_are_added_once() -> None:
    recipe = with_training_budget(find_recipe("qad-int3-g64"), num_tokens=8192)
    assert recipe == find_recipe("qad-int3-g64-8192")
    assert with_training_budget(find_recipe("qat-int8"), minutes=3.0) == find_recipe("qat-int8-3m")
    with pytest.raises(ConfigError, match="budget of training already"):
        with_training_budget(recipe, minutes=3.0)
    with pytest.raises(ConfigError, match="trains codes, and this one does not"):
        with_training_budget(find_recipe("gptq-int3-g64"), minutes=3.0)


@pytest.mark.parametrize(
    "step",
    [
        {"num_tokens": 1, "minutes": 1.0},
        {"minutes": 0.0},
        {"num_tokens": -5},
        {"learning_rate": 0.0},
        {"method": "scales", "rule": "fixed"},
    ],
)
def test_bad_steps(step: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        TrainStep(**step)


@pytest.mark.parametrize("name", ["qad-int3-g64", "gptq-int3-g64-scales-10m", "llm-qat-w4a8-kv8"])
def test_files_say_the_same(name: str, tmp_path: Path) -> None:
    recipe = find_recipe(name)
    write_recipe(recipe, tmp_path / "mine.yaml")
    read = read_recipe(tmp_path / "mine.yaml")
    assert (read.steps, read.kv_cache) == (recipe.steps, recipe.kv_cache)


def test_files_have_more_options() -> None:
    quantize = {"method": "gptq", "format": "int3-g64"}
    train = {"method": "qat", "minutes": 5, "rule": "fixed", "learning_rate": 0.002}
    recipe = parse_recipe({"steps": [quantize, train]}, "mine")
    expected = TrainStep(method="qat", minutes=5, rule="fixed", learning_rate=0.002)
    assert recipe.train_step == expected
    for wrong in ({"rule": "best"}, {"tokens": "many"}, {"rate": 1}):
        with pytest.raises(ConfigError, match="step 2"):
            parse_recipe({"steps": [quantize, {"method": "qad"} | wrong]}, "mine")

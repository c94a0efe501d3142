"""A folder that asks for its inputs to be rounded otherwise than its formats say."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.changed_recipe import with_inputs
from paredown.compress.compress import compress
from paredown.compress.convert.convert import convert
from paredown.compress.recipe_file import parse_recipe, read_recipe, write_recipe
from paredown.compress.recipe_names import find_recipe
from paredown.errors import CheckpointError, ConfigError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.paredown_section import SECTION
from paredown.models.resolve import resolve_model

RECIPE = "int4-g32-on-int16_group"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("source") / "llama"
    wide = {"hidden_size": 128, "intermediate_size": 256}
    make_model("llama", torch.float32, 0, **wide).save_pretrained(folder)
    return Checkpoint.open(folder)


def native_logits(checkpoint: Checkpoint, activations: str | None = None) -> np.ndarray:
    options = RunOptions(num_pages=4, threads=ThreadPlan.resolve(1), activations=activations)
    executor = load_executor(checkpoint, options)
    ids = [5 * i % VOCAB_SIZE for i in range(40)]
    pages = list(range(executor.num_pages))
    return executor.step([SequenceSlice(token_ids=ids, start=0, pages=pages, num_logits=len(ids))])


def test_a_recipe_keeps_them_in_the_folder_and_an_option_wins(
    source: Checkpoint, tmp_path: Path
) -> None:
    compress(source, tmp_path / "out", RECIPE)
    made = Checkpoint.open(tmp_path / "out")
    assert set(made.inputs.values()) == {"int16_group"}
    assert made.config[SECTION] == {"activations": {"int16_group": "all"}}
    assert made.notes == ()
    compress(source, tmp_path / "plain", "int4-g32")
    plain = Checkpoint.open(tmp_path / "plain")
    assert plain.inputs == {}
    asked = native_logits(made)
    assert np.array_equal(asked, native_logits(plain, "int16_group"))
    assert not np.array_equal(asked, native_logits(plain))
    assert np.array_equal(native_logits(made, "int8_group"), native_logits(plain))


def test_some_modules_may_have_them_alone(source: Checkpoint, tmp_path: Path) -> None:
    steps = [{"method": "rtn", "format": "int4-g32"}]
    steps += [{"method": "rtn", "format": f"{RECIPE}", "targets": ["down"]}]
    compress(source, tmp_path / "out", parse_recipe({"steps": steps}, "mixed"))
    made = Checkpoint.open(tmp_path / "out")
    down = [made.linear_name("down", layer) for layer in range(made.spec.num_layers)]
    assert made.inputs == dict.fromkeys(down, "int16_group")
    specs = made.weight_specs()
    assert {specs[name].name for name in down} == {RECIPE}
    assert made.linear("down", 0).spec.name == RECIPE
    assert made.linear("gate", 0).spec.name == "int4-g32"
    all_of_them = native_logits(made, "int16_group")
    assert not np.array_equal(native_logits(made), all_of_them)
    assert not np.array_equal(native_logits(made), native_logits(made, "int8_group"))


def test_they_are_nearly_what_float_inputs_give(source: Checkpoint, tmp_path: Path) -> None:
    made = Checkpoint.open(compress(source, tmp_path / "out", RECIPE).path)
    exact = native_logits(made, "fp32")
    errors = {
        one: float(np.abs(native_logits(made, one) - exact).max())
        for one in ("int8_group", "int16_group")
    }
    assert errors["int16_group"] < errors["int8_group"] / 30


def test_transformers_reads_such_a_folder(source: Checkpoint, tmp_path: Path) -> None:
    compress(source, tmp_path / "out", RECIPE)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert config.quantization_config["config_groups"]["group_0"]["input_activations"] is None


def test_recipe_files_say_the_same(tmp_path: Path) -> None:
    recipe = find_recipe(RECIPE)
    assert recipe.linear.activations == "int16_group"
    write_recipe(recipe, tmp_path / f"{RECIPE}.yaml")
    assert read_recipe(tmp_path / f"{RECIPE}.yaml") == recipe


@pytest.mark.parametrize(
    "name", ["int4-g32-on-int12", "int4-g32-on-", "bf16-on-int16_group", "int8-on-int8_row"]
)
def test_formats_with_inputs_that_they_do_not_take_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match="no such format"):
        find_recipe(name)


def test_a_recipe_is_given_inputs_where_its_weights_take_them() -> None:
    made = with_inputs(find_recipe("int8-head-fp8-embedding-int8"), "int16_group")
    names = [step.spec.name for step in made.quantize_steps]
    assert names == ["int8-on-int16_group", "fp8", "int8"]
    assert made.name == "int8-head-fp8-embedding-int8-on-int16_group"
    with pytest.raises(ConfigError, match="no weights of the recipe"):
        with_inputs(find_recipe("fp8"), "int16_group")
    with pytest.raises(ConfigError, match="w8a8"):
        with_inputs(find_recipe("int8"), "int8_row")


@pytest.mark.parametrize(
    "section",
    [
        "int16_group",
        {},
        {"other": {}},
        {"activations": "int16_group"},
        {"activations": {"int12": "all"}},
        {"activations": {"int16_group": "some"}},
        {"activations": {"int16_group": [1]}},
        {"activations": {"int16_group": ["model.embed_tokens"]}},
        {"activations": {"int16_group": "all", "bf16": "all"}},
        {"activations": {"int16_group": []}},
        {"activations": {"int8_static": "all"}},
        {"activations": {"int8_row": "all"}},
    ],
)
def test_a_field_that_is_not_known_is_refused(
    section: object, source: Checkpoint, tmp_path: Path
) -> None:
    folder = compress(source, tmp_path / "out", "int8").path
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {SECTION: section}))
    with pytest.raises(CheckpointError, match=r"config\.json: paredown"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("target", ["gptq", "bf16"])
def test_a_folder_with_them_is_converted(target: str, tmp_path: Path) -> None:
    make_model("llama", torch.float16, 0).save_pretrained(tmp_path / "source")
    source = Checkpoint.open(tmp_path / "source")
    made = Checkpoint.open(compress(source, tmp_path / "out", RECIPE).path)
    convert(made, tmp_path / "other", target)
    other = Checkpoint.open(tmp_path / "other")
    assert other.inputs == (made.inputs if target == "gptq" else {})


def test_gguf_has_no_place_for_them_and_says_so(tmp_path: Path) -> None:
    draft = Checkpoint.open(resolve_model("draft"))
    made = Checkpoint.open(compress(draft, tmp_path / "out", RECIPE).path)
    notes = convert(made, tmp_path / "out.gguf", "gguf").notes
    assert any("--activations int16_group" in note for note in notes)

"""Groups that follow the model: the largest that divides each layer's columns."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fakes.tiny_models import make_model
from paredown.compress.checked_recipe import check_recipe
from paredown.compress.compress import compress
from paredown.compress.group_sizes import ANY_GROUPS, fit_groups, groups_name, split_groups
from paredown.compress.recipe_file import read_recipe, write_recipe
from paredown.compress.recipe_names import find_recipe
from paredown.errors import ConfigError, UnsupportedError
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """q, k, v, o, gate and up have 96 columns, down has 256."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    sizes = {"hidden_size": 96, "intermediate_size": 256}
    make_model("llama", torch.bfloat16, 0, **sizes).save_pretrained(folder)
    return Checkpoint.open(folder)


@given(st.integers(1, 4096), st.sets(st.sampled_from(ANY_GROUPS), min_size=1))
def test_the_largest_that_divides(num_columns: int, sizes: set[int]) -> None:
    found = fit_groups(FORMATS["int4-g128"], tuple(sizes), num_columns).group_size
    assert found in sizes
    better = [size for size in sizes if size > found and num_columns % size == 0]
    assert not better
    assert num_columns % found == 0 or all(num_columns % size for size in sizes)


def test_names_say_the_sizes() -> None:
    assert split_groups("int4-g128-g64-g32") == ("int4-g128", (128, 64, 32))
    assert split_groups("int3-g64-g32-asym") == ("int3-g64-asym", (64, 32))
    assert split_groups("w4a8-g128-g32-asym-qoq") == ("w4a8-g128-asym-qoq", (128, 32))
    assert split_groups("int4-g64") == ("int4-g64", ())
    assert split_groups("w8a8") == ("w8a8", ())
    for wrong in ("int4-g32-g64", "int4-g64-g64", "int4-g128-g48"):
        with pytest.raises(ConfigError, match="from large to small"):
            find_recipe(wrong)


def test_each_layer_has_its_own_and_the_name_says_so(source: Checkpoint, tmp_path: Path) -> None:
    made = compress(source, tmp_path / "out", "int4-g128-g64-g32-head-int6-g64-g32")
    assert made.name == "int4-g128-g32-head-int6-g32"
    written = Checkpoint.open(tmp_path / "out")
    specs = written.weight_specs()
    assert specs["model.layers.0.mlp.down_proj"].name == "int4-g128"
    assert specs["model.layers.1.self_attn.q_proj"].name == "int4-g32"
    assert specs["lm_head"].name == "int6-g32"
    groups = written.config["quantization_config"]["config_groups"].values()
    assert sorted(group["weights"]["group_size"] for group in groups) == [32, 32, 128]


def test_zero_points_have_one_size_for_all(source: Checkpoint) -> None:
    checked = check_recipe(source, "int4-g128-g64-g32-asym")
    assert checked.recipe.name == "int4-g32-asym"
    assert {scheme.spec.group_size for scheme in checked.schemes.values()} == {32}


def test_a_size_that_was_asked_for_alone_is_no_choice(source: Checkpoint) -> None:
    with pytest.raises(UnsupportedError, match=r"do not divide.*int4-g128-g64-g32"):
        check_recipe(source, "int4-g128")
    with pytest.raises(UnsupportedError, match="groups of 64"):
        check_recipe(source, "int4-g128-g64")


def test_recipe_files_keep_the_choice(tmp_path: Path) -> None:
    recipe = find_recipe(f"gptq-int4{groups_name(ANY_GROUPS)}-head-int8")
    write_recipe(recipe, tmp_path / "fitting.yaml")
    assert read_recipe(tmp_path / "fitting.yaml").steps == recipe.steps

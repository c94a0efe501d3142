"""Recipes by name and from files, and the table they resolve to."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fakes.tiny_models import make_model
from paredown.compress.methods import QUANTIZERS, TRANSFORMS
from paredown.compress.quantize.aqlm import AQLM
from paredown.compress.quantize.method import LayerTarget, Moments
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_file import parse_recipe, read_recipe, write_recipe
from paredown.compress.recipe_names import NAMED, find_recipe
from paredown.compress.schemes import resolve_schemes, scheme_rows
from paredown.compress.steps import QuantizeStep
from paredown.errors import ConfigError, UnsupportedError
from paredown.formats.table import FORMATS, RECIPE_FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.spec.weight import WeightSpec

WIDE = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4}
Q0 = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("source") / "llama"
    make_model("llama", torch.bfloat16, 0, **WIDE).save_pretrained(folder)
    return Checkpoint.open(folder)


def step(format_name: str, *targets: str) -> QuantizeStep:
    return QuantizeStep(quantizer=RTN(), spec=FORMATS[format_name], targets=targets)


@pytest.mark.parametrize("method", ["rtn", "gptq", "hqq", *TRANSFORMS])
def test_every_method_has_a_name(method: str) -> None:
    recipe = find_recipe(f"{method}-int4-g128-head-int8-kv-int8")
    assert recipe.linear == FORMATS["int4-g128"]
    assert recipe.output == FORMATS["int8"]
    assert recipe.kv_cache == "int8"
    made = [*recipe.transforms, *(one.quantizer for one in recipe.quantize_steps)]
    assert any(type(one) is (QUANTIZERS | TRANSFORMS)[method] for one in made)


@pytest.mark.parametrize("transform", [*TRANSFORMS])
@pytest.mark.parametrize("quantizer", ["rtn", "gptq", "hqq"])
def test_transforms_go_before_quantizers(transform: str, quantizer: str) -> None:
    recipe = find_recipe(f"{transform}-{quantizer}-int4-g128")
    assert [type(one) for one in recipe.transforms] == [TRANSFORMS[transform]]
    assert type(recipe.quantize_steps[0].quantizer) is QUANTIZERS[quantizer]
    with pytest.raises(ConfigError, match="after its transforms"):
        find_recipe(f"{quantizer}-{transform}-int4-g128")


def test_whole_recipes_have_names_that_can_be_added_to() -> None:
    for name, whole in NAMED.items():
        assert find_recipe(name) == whole
        assert whole.name == name
        if name.startswith("aqlm"):
            continue
        longer = find_recipe(f"{name}-head-int8-kv-int8")
        assert longer.steps[:-1] == whole.steps
        assert (longer.output, longer.kv_cache) == (FORMATS["int8"], "int8")


def test_names_that_make_no_sense() -> None:
    for name, what in {
        "rtn-bf16": "needs a quantized format",
        "rtn-gptq-int4-g128": "one quantizer",
        "awq-awq-int4-g128": "named twice",
        "nosuch-int4-g128": "no such format",
        "mixed-4": "paredown optimize --formats mixed-4",
        "int8-kv-int3": "keys and values",
        "bf16-kv-int8": "there are none",
    }.items():
        with pytest.raises(ConfigError, match=what):
            find_recipe(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llm_int8-int4-g128", r"llm_int8 cannot make int4-g128.*recipe llm-int8"),
        ("llm_int8-int8-asym", "llm_int8 cannot make int8-asym"),
        ("llm_int8-fp8", "llm_int8 cannot make fp8"),
        ("awq-llm_int8-int8-g128", "llm_int8 cannot make int8-g128"),
        ("llm-int8-head-int4-g128", "llm_int8 cannot make int4-g128"),
        ("aqlm-int4", r"aqlm cannot make int4: .*aqlm-2x8-g8"),
        ("aqlm-2x8-g8-head-int8", "aqlm cannot make int8"),
    ],
)
def test_a_format_that_a_method_does_not_make_is_refused_at_once(name: str, words: str) -> None:
    with pytest.raises((ConfigError, UnsupportedError), match=words):
        find_recipe(name)


@pytest.mark.parametrize("method", ["rtn", "gptq", "hqq", "llm_int8", "aqlm"])
def test_what_a_method_says_it_makes_it_makes(method: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight_OI = torch.randn(8, 128, generator=generator)
    x_NI = torch.randn(200, 128, generator=generator)
    moments = Moments(hessian_II=x_NI.T @ x_NI / 100, num_rows=200)
    quantizer = QUANTIZERS[method]()
    if method == "aqlm":
        quantizer = AQLM(num_codebooks=1, nbits_per_codebook=3, max_rounds=1)
    made = set()
    for name, spec in RECIPE_FORMATS.items():
        try:
            quantizer.check(spec)
        except (ConfigError, UnsupportedError):
            continue
        scale_dtype = spec.dtype if spec.dtype in ("fp16", "bf16") else "fp32"
        target = LayerTarget(spec=spec, scale_dtype=scale_dtype)
        assert quantizer.quantize(weight_OI, target, moments).weight
        made.add(name)
    floats = {name for name, spec in FORMATS.items() if not spec.is_quantized}
    known = {
        "llm_int8": {"int8", "w8a8", "w8a8-static"},
        "aqlm": {"fp16", "bf16"},
    }
    assert made == known.get(method, {*RECIPE_FORMATS} - floats)


def test_later_steps_override(source: Checkpoint) -> None:
    steps = (
        step("int4-g128", "layers"),
        step("int8", "down", "re:model\\.layers\\.[13]\\.self_attn\\.v_proj", Q0),
        step("int6-g128", "head"),
    )
    schemes = resolve_schemes(Recipe(name="mixed", steps=steps), source)
    assert schemes[Q0].spec == FORMATS["int8"]
    assert schemes["lm_head"].spec == FORMATS["int6-g128"]
    rows = scheme_rows(schemes, source)
    found = {(row.layers, row.roles, row.format): row.num_modules for row in rows}
    assert found["1-3", "q", "int4-g128"] == 3
    assert found["0, 2", "v", "int4-g128"] == 2
    assert found["1, 3", "v", "int8"] == 2
    assert found["0-3", "down", "int8"] == 4
    assert found["0-3", "k, o, gate, up", "int4-g128"] == 16
    assert found["", "head", "int6-g128"] == 1
    assert sum(row.num_modules for row in rows) == 4 * 7 + 1


def test_the_table_names_what_stays(source: Checkpoint) -> None:
    schemes = resolve_schemes(Recipe(name="o", steps=(step("int8", "o"),)), source)
    assert [row.format for row in scheme_rows(schemes, source) if "q" in row.roles] == ["as it is"]


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ((step("int8", "nosuch"),), "matches no linear layer"),
        # A class name or a prefix is not a whole name.
        ((step("int8", "re:model.layers.1"),), "matches no linear layer"),
        ((step("int8", "re:("),), "not a regular expression"),
        ((step("int8", "down"), step("int4-g128", "layers")), "takes every module"),
    ],
)
def test_targets_that_do_nothing(
    source: Checkpoint, steps: tuple[QuantizeStep, ...], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        resolve_schemes(Recipe(name="bad", steps=steps), source)


def test_what_others_cannot_tell_apart_is_refused(source: Checkpoint) -> None:
    steps = (step("int4-g128-asym", "layers"), step("int8", "down"))
    with pytest.raises(UnsupportedError, match="asymmetric"):
        resolve_schemes(Recipe(name="bad", steps=steps), source)


def test_files(source: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        """
steps:
  - method: rtn
    format: int4-g128
    range: mse
  - method: rtn
    format: {dtype: int8, group_size: 64}
    targets: [down, head]
floats: bf16
kv_cache: int8
"""
    )
    recipe = read_recipe(path)
    assert recipe == Recipe(
        name="mine",
        steps=(
            QuantizeStep(quantizer=RTN(range="mse"), spec=FORMATS["int4-g128"]),
            QuantizeStep(
                quantizer=RTN(),
                spec=WeightSpec(dtype="int8", group_size=64),
                targets=("down", "head"),
            ),
        ),
        floats="bf16",
        kv_cache="int8",
    )
    assert len(resolve_schemes(recipe, source)) == 4 * 7 + 1


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({"steps": [{"method": "awq"}]}, "would change nothing"),
        ([], "the recipe is not valid"),
        ({"step": []}, "the recipe has an unknown key.*step.*steps"),
        ({"steps": {}}, "steps is not valid.*list"),
        ({"steps": [{"method": "nosuch"}]}, "step 1 names no known method.*nosuch"),
        ({"steps": [{"method": ["rtn"]}]}, "step 1 names no known method.*rtn"),
        *(
            (
                {"steps": [{"method": "rtn", "format": {"dtype": "int4", "group_size": size}}]},
                "step 1, format, group_size is not valid",
            )
            for size in (0, -32)
        ),
        (
            {"steps": [{"method": "rtn", "format": {"dtype": "fp8", "symmetric": False}}]},
            "step 1, format, symmetric.*no zero points",
        ),
        (
            {"steps": [{"method": "rtn", "format": "int8"}, {"method": "awq"}]},
            "a step of the recipe stands after.*step 2",
        ),
        ({"kv_cache": "int8"}, "there are none"),
        ({"steps": [{"method": "hqq", "format": "int4", "norm": math.nan}]}, "HQQ's norm"),
        ({"steps": [{"method": "hqq", "format": "int4", "num_iterations": -1}]}, "iterations"),
        ({"steps": [{"method": "rtn"}]}, "does not say what its targets become"),
        ({"steps": [{"method": "rtn", "format": "int9"}]}, "step 1, format.*int9"),
        ({"steps": [{"method": "rtn", "format": {"bits": 4}}]}, "unknown key.*bits"),
        ({"steps": [{"method": "rtn", "format": {"group_size": 4}}]}, "fields with a dtype"),
        (
            {"steps": [{"method": "rtn", "format": {"dtype": "fp8", "activations": "int8_row"}}]},
            "step 1, format, activations.*bf16",
        ),
        (
            {"steps": [{"method": "rtn", "format": {"dtype": "int4", "integer_steps": True}}]},
            "step 1, format, integer_steps.*int4 groups alone",
        ),
        (
            {"steps": [{"method": "rtn", "format": {"dtype": "int4", "integer_steps": 1}}]},
            "integer_steps.*bool",
        ),
        ({"steps": [{"method": "rtn", "format": "int8", "rang": 1}]}, "unknown key.*rang.*range"),
        ({"steps": [{"method": "rtn", "format": "int8", "range": "max"}]}, "step 1, range.*mse"),
        ({"steps": [{"method": "rtn", "format": "int8", "per_tensor": 1}]}, "per_tensor.*bool"),
        ({"steps": [{"method": "rtn", "format": "int8", "targets": []}]}, "list of names"),
        ({"steps": [], "kv_cache": "int3"}, "kv_cache"),
        ({"steps": [], "floats": "int8"}, "floats"),
    ],
)
def test_files_that_make_no_sense(document: object, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_recipe(document, "x")


def test_a_file_that_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("steps: [")
    for name in ("x.yaml", "nosuch.yaml"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_recipe(tmp_path / name)


@pytest.mark.parametrize(
    "recipe",
    [
        *(f"{transform}-{quantizer}-w4a8" for transform in TRANSFORMS for quantizer in ("gptq",)),
        "rtn-int3-g64-asym-head-int8-kv-int8",
        "awq-gptq-w4a8-g64-asym-qoq-head-w4a8-g32-qoq",
        "smoothquant-o3",
        "bf16",
    ],
)
def test_what_is_written_reads_to_the_same(recipe: str, tmp_path: Path) -> None:
    made = replace(find_recipe(recipe), name="again")
    write_recipe(made, tmp_path / "again.yaml")
    assert read_recipe(tmp_path / "again.yaml") == made
    odd = QuantizeStep(
        quantizer=RTN(range="mse"), spec=WeightSpec(dtype="int5", group_size=96), targets=("down",)
    )
    write_recipe(replace(made, steps=(*made.steps, odd)), tmp_path / "odd.yaml")
    assert read_recipe(tmp_path / "odd.yaml").steps[-1] == odd
    stepped = WeightSpec(dtype="int4", group_size=96, integer_steps=True)
    steps = (*made.steps, replace(odd, spec=stepped))
    write_recipe(replace(made, steps=steps), tmp_path / "odd.yaml")
    assert read_recipe(tmp_path / "odd.yaml").steps[-1].spec == stepped
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.yaml", "odd.yaml"]

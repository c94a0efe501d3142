"""Recipes that quantize the output layer: what is written, and how others read it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.compress_result import MadeLayers
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.size import weight_bytes
from paredown.errors import UnsupportedError
from paredown.executors.native.memory_plan import plan_memory
from paredown.formats.quantize import quantize
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.spec.kv import KVSpec

# Every group size divides these.
WIDE = {"hidden_size": 128, "intermediate_size": 256}
OPT_WIDE = {"hidden_size": 128, "ffn_dim": 256}
SOURCES = {
    "llama-untied": ("llama", WIDE),
    "llama-tied": ("llama", WIDE | {"tie_word_embeddings": True}),
    "qwen3-tied": ("qwen3", WIDE | {"tie_word_embeddings": True}),
    "opt-tied": ("opt", OPT_WIDE),
    "gpt2-tied": ("gpt2", {"n_embd": 128}),
}
RECIPES = (
    "int4-g128-head-int8",
    "int4-g32-asym-head-int4-g32-asym",
    "int8-head-w8a8",
    "bf16-head-int8",
)

# What the libraries themselves say when a compressed checkpoint is loaded.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::UserWarning:compressed_tensors"),
]


def write_source(folder: Path, name: str) -> Checkpoint:
    family, changes = SOURCES[name]
    make_model(family, torch.bfloat16, 0, **changes).save_pretrained(folder)
    return Checkpoint.open(folder)


def check_loads(source: Checkpoint, out: Path, recipe: Recipe) -> None:
    ours = Checkpoint.open(out)
    head = ours.output()
    assert head.spec == recipe.output
    expected = quantize(source.output().dequantize(), head.spec, "bf16")
    assert np.array_equal(head.dequantize(), expected.dequantize())
    assert np.array_equal(ours.embedding().dequantize(), source.embedding().dequantize())
    theirs = AutoModelForCausalLM.from_pretrained(out, dtype="auto").eval()
    ids = torch.randint(0, VOCAB_SIZE, (1, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs(ids)
    weight = theirs.get_output_embeddings().weight
    assert np.array_equal(weight.detach().float().numpy(), head.dequantize())
    embedding = theirs.get_input_embeddings().weight
    assert np.array_equal(embedding.detach().float().numpy(), source.embedding().dequantize())


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "gpt2-tied"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_transformers_loads_a_quantized_output_layer(
    recipe: str, name: str, tmp_path: Path
) -> None:
    source = write_source(tmp_path / "in", name)
    result = compress(source, tmp_path / "out", recipe)
    assert result.name == recipe
    assert result.untied == name.endswith("-tied")
    assert "lm_head.weight" not in result.kept
    check_loads(source, tmp_path / "out", find_recipe(recipe))


def test_gpt2_can_have_a_quantized_output_layer(tmp_path: Path) -> None:
    """Its other linear layers are transposed and stay in floats."""
    source = write_source(tmp_path / "in", "gpt2-tied")
    compress(source, tmp_path / "out", "bf16-head-int8")
    check_loads(source, tmp_path / "out", find_recipe("bf16-head-int8"))


@pytest.mark.parametrize(
    "recipe", ["int4-g32-asym-head-int8", "int8-head-int8-asym", "int8-asym-head-int4-g32-asym"]
)
def test_mixtures_that_transformers_would_confuse_are_refused(recipe: str, tmp_path: Path) -> None:
    source = write_source(tmp_path / "in", "llama-tied")
    with pytest.raises(UnsupportedError, match=recipe.replace("-head-", ", ")):
        compress(source, tmp_path / "out", recipe)
    assert not (tmp_path / "out").exists()


def test_the_decoder_computes_what_transformers_does(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    make_model("llama", torch.float32, 0, **WIDE, tie_word_embeddings=True).save_pretrained(
        tmp_path / "in"
    )
    compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "int4-g128-head-int8")
    ours = Decoder.from_checkpoint(Checkpoint.open(tmp_path / "out"))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    ids = torch.randint(0, VOCAB_SIZE, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (theirs(ids).logits - ours(ids)).abs().max().item() <= 1e-4


def test_a_recipe_without_head_keeps_a_tied_layer_tied(tmp_path: Path) -> None:
    compress(write_source(tmp_path / "in", "llama-tied"), tmp_path / "out", "int4-g128")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["tie_word_embeddings"] is True
    assert config["quantization_config"]["ignore"] == ["lm_head"]


def test_sizes_count_the_layer_once(tmp_path: Path) -> None:
    """Bits per weight are of the source's parameters; a step reads the layer, not the table."""
    source = write_source(tmp_path / "in", "llama-tied")
    for name, recipe in (("plain", "int4-g128"), ("head", "int4-g128-head-int8")):
        result = compress(source, tmp_path / name, recipe)
        num_bits = 8 * result.file_bytes
        assert result.bits_per_weight == num_bits / source.spec.num_parameters()
    plain, head = (Checkpoint.open(tmp_path / name) for name in ("plain", "head"))
    spec = source.spec
    head_bytes = spec.vocab_size * spec.hidden_size + spec.vocab_size * 2 + 16
    assert weight_bytes(head) == weight_bytes(plain) + head_bytes
    plans = [
        plan_memory(Checkpoint.open(tmp_path / name), KVSpec(num_pages=8), 1)
        for name in ("plain", "head")
    ]
    table = 2 * spec.vocab_size * spec.hidden_size
    # A tied table is read out of the output layer; one of its own comes back with a layer apart.
    assert [plan.embedding_bytes for plan in plans] == [0, table]
    assert plans[0].weight_bytes - plans[1].weight_bytes == table - head_bytes + 16


def test_names_say_what_a_recipe_is() -> None:
    for linear in FORMATS:
        assert find_recipe(linear).name == linear
        name = f"{linear}-head-int8"
        recipe = find_recipe(name)
        assert (recipe.linear, recipe.output) == (FORMATS[linear], FORMATS["int8"])
        assert not recipe.needs_calibration
        assert find_recipe(name).name == name


def test_layers_are_taken_from_a_recipe_with_an_output_layer_bit_for_bit(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in", "llama-tied")
    windows_NT = np.random.default_rng(5).integers(0, VOCAB_SIZE, (4, 24))
    calibration = Calibration(windows_NT=windows_NT, source="random tokens")
    with_head, plain = (find_recipe(f"gptq-int4-g32{end}") for end in ("-head-int8", ""))
    assert plain.has_layers_of(with_head)
    made = compress(source, tmp_path / "made", with_head, calibration=calibration)
    notes = (*made.notes, "lm_head: damp grew", "model.layers.0.mlp.up_proj: damp grew")
    layers = MadeLayers(checkpoint=Checkpoint.open(made.path), notes=notes)
    taken = compress(source, tmp_path / "taken", plain, calibration=calibration, layers=layers)
    alone = compress(source, tmp_path / "alone", plain, calibration=calibration)
    for name in ("model.safetensors", "config.json"):
        assert (taken.path / name).read_bytes() == (alone.path / name).read_bytes()
    assert taken.notes == (*alone.notes, "model.layers.0.mlp.up_proj: damp grew")
    assert taken.kept == alone.kept
    assert taken.schemes == alone.schemes
    assert taken.calibration == "random tokens"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("gptq-int4-g32", "gptq-int4-g64-head-int8"),
        ("gptq-int4-g32", "hqq-int4-g32-head-int8"),
        ("gptq-int4-g32", "gptq-int4-g32"),
        ("gptq-int4-g32-head-int8", "gptq-int4-g32"),
        ("awq-int4-g32", "awq-int4-g32-head-int8"),
    ],
)
def test_recipes_that_make_other_layers(name: str, other: str) -> None:
    assert not find_recipe(name).has_layers_of(find_recipe(other))

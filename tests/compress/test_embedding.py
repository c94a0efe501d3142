"""Recipes that quantize the table of embeddings: what is written, and how others read it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.compress import compress
from paredown.compress.convert.convert import convert
from paredown.compress.recipe_names import find_recipe
from paredown.errors import UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.formats.quantize import quantize
from paredown.formats.table import FORMATS
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

RECIPES = (
    "int8-head-int8-embedding-int8",
    "int6-g64-g32-head-int8-embedding-int8",
    "w8a8-head-w8a8-embedding-int8",
)
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::UserWarning:compressed_tensors"),
]


def source(folder: Path, *, tied: bool) -> Checkpoint:
    make_model("llama", torch.bfloat16, 0, tie_word_embeddings=tied).save_pretrained(folder)
    return Checkpoint.open(folder)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
def test_transformers_loads_the_same_table(recipe: str, tied: bool, tmp_path: Path) -> None:
    original = source(tmp_path / "in", tied=tied)
    made = compress(original, tmp_path / "out", recipe)
    assert made.file_bytes < 0.62 * original.file_bytes * (1.5 if tied else 1)
    ours = Checkpoint.open(tmp_path / "out")
    expected = quantize(original.embedding().dequantize(), FORMATS["int8"], "bf16").dequantize()
    assert np.array_equal(ours.embedding().dequantize(), expected)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").eval()
    ids = torch.randint(0, VOCAB_SIZE, (1, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs(ids)
    table = theirs.get_input_embeddings().weight.detach().float().numpy()
    assert np.max(np.abs(table - expected)) <= 2.0**-8 * np.max(np.abs(expected))


def test_both_executors_read_it(tmp_path: Path) -> None:
    compress(source(tmp_path / "in", tied=True), tmp_path / "out", RECIPES[0])
    checkpoint = Checkpoint.open(tmp_path / "out")
    ids = list(range(1, 17))
    options = RunOptions(num_pages=1, threads=ThreadPlan.resolve(1), activations="fp32")
    found = load_executor(checkpoint, options).step(
        [SequenceSlice(token_ids=ids, start=0, pages=[0], num_logits=len(ids))]
    )
    with torch.inference_mode():
        expected = Decoder.from_checkpoint(checkpoint)(torch.tensor([ids]))[0].numpy()
    assert np.max(np.abs(found - expected)) < 0.05 * np.max(np.abs(expected))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    tied = source(tmp_path / "in", tied=True)
    for recipe, why in (
        ("int8-embedding-int8", "is the output layer too"),
        ("int8-head-int8-embedding-int4", "stored in int8"),
        ("int8-asym-head-int8-asym-embedding-int8", "asymmetric"),
    ):
        with pytest.raises(UnsupportedError, match=why):
            compress(tied, tmp_path / "out", recipe)
    assert not (tmp_path / "out").exists()


def test_conversion_says_what_has_no_place(tmp_path: Path) -> None:
    compress(source(tmp_path / "in", tied=False), tmp_path / "a", RECIPES[0])
    made = Checkpoint.open(tmp_path / "a")
    with pytest.raises(UnsupportedError, match="the embedding is quantized"):
        convert(made, tmp_path / "b", "gptq")
    convert(made, tmp_path / "c", "bf16")
    assert not Checkpoint.open(tmp_path / "c").is_quantized


def test_the_name_says_all_three() -> None:
    recipe = find_recipe("gptq-int4-g64-head-int8-embedding-int8-kv-int8")
    assert [step.targets for step in recipe.quantize_steps] == [
        ("layers",),
        ("head",),
        ("embedding",),
    ]
    assert recipe.output == FORMATS["int8"]
    assert recipe.kv_cache == "int8"

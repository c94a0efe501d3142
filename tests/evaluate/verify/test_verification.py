"""verification.json says what was measured on what was written."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.stored_fingerprint import read_fingerprint
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import MAX_POSITIONS, make_model
from fakes.toy_executor import ToyExecutor
from paredown.compress.compress import compress
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.steps import QuantizeStep
from paredown.errors import CheckpointError
from paredown.evaluate.quality.layer_error import layer_errors
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.texts.text import EvalText, choose_text
from paredown.evaluate.verify.verification import LAYER_TOKENS, verify
from paredown.evaluate.verify.verification_file import NAME
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.safetensors_file import read_safetensors
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.weight import WeightSpec


@pytest.fixture
def source(tmp_path: Path) -> Checkpoint:
    make_model("llama", torch.bfloat16, 0, initializer_range=0.08).save_pretrained(
        tmp_path / "source"
    )
    write_byte_tokenizer(tmp_path / "source")
    return Checkpoint.open(tmp_path / "source")


@pytest.fixture
def text(source: Checkpoint, tmp_path: Path) -> EvalText:
    path = tmp_path / "text.txt"
    path.write_text("All happy families are alike; every unhappy family is unhappy. " * 9)
    return choose_text(path, Tokenizer.open(source.path), 300, ToyExecutor, MAX_POSITIONS)


def test_the_figures_are_those_measured_one_by_one(source, text, tmp_path: Path) -> None:
    compress(source, tmp_path / "out", "int3-g32-asym")
    compressed = Checkpoint.open(tmp_path / "out")
    shares = []
    found = verify(
        source,
        compressed,
        text,
        recipe="int3-g32-asym",
        on_progress=lambda what, share: shares.append(share),
    )
    assert shares == sorted(shares)
    assert shares[-1] == 1

    pages = num_pages_for(text)
    models = [load_executor(one, RunOptions(num_pages=pages)) for one in (compressed, source)]
    (quality,), own = measure_quality(models[:1], text, models[1])
    assert found.compressed.perplexity == quality.perplexity
    assert found.compressed.kl_divergence == quality.kl_divergence > 0
    assert found.original.perplexity == own.perplexity
    errors = layer_errors(source, compressed, text.windows[0].inputs[:LAYER_TOKENS])
    assert found.layer_errors == errors
    assert found.worst_layers[0].own == max(one.own for one in errors)

    found.write(tmp_path / "out")
    written = json.loads((tmp_path / "out" / NAME).read_text())
    assert written["recipe"] == "int3-g32-asym"
    assert written["compressed"]["perplexity"] == quality.perplexity
    assert written["compressed"]["top1_agreement"] == quality.top1_agreement
    file_bytes = (tmp_path / "out" / "model.safetensors").stat().st_size
    assert written["compressed"]["file_bytes"] == file_bytes
    bits = 8 * file_bytes / source.spec.num_parameters()
    assert written["compressed"]["bits_per_weight"] == bits
    assert written["original"]["file_bytes"] == source.file_bytes
    assert written["compressed"]["held_bytes"] == models[0].weight_bytes
    assert written["original"]["held_bytes"] == models[1].weight_bytes
    assert [one["layer"] for one in written["layer_errors"]] == [0, 1]
    assert text.protocol in written["protocol"]
    assert set(written["versions"]) == {"paredown", "python", "numpy", "tokenizers", "torch"}
    assert read_fingerprint(tmp_path / "out") == found.fingerprint


def test_what_runs_otherwise_than_it_is_stored_is_in_the_proof(
    source, text, tmp_path: Path
) -> None:
    """Groups of 16 columns have no kernel: the weights take two bytes each, and a note says why."""
    step = QuantizeStep(quantizer=RTN(), spec=WeightSpec(dtype="int4", group_size=16))
    compress(source, tmp_path / "out", Recipe(name="int4-g16", steps=(step,)))
    compressed = Checkpoint.open(tmp_path / "out")
    noted = replace(source, notes=("theirs", "once"))
    found = verify(noted, compressed, text, recipe="int4-g16", notes=("of the recipe", "once"))
    assert found.notes[:2] == ("of the recipe", "once")
    assert found.notes[2].startswith("groups of 16 columns have no kernel")
    assert found.notes[3:] == ("the original: theirs",)
    assert found.figures()["notes"] == list(found.notes)
    assert found.compressed.held_bytes == found.original.held_bytes


def test_a_reference_that_is_loaded_already_changes_nothing(source, text, tmp_path: Path) -> None:
    compress(source, tmp_path / "out", "int8")
    compressed = Checkpoint.open(tmp_path / "out")
    reference = load_executor(source, RunOptions(num_pages=num_pages_for(text)))
    once = verify(source, compressed, text, recipe="int8")
    again = verify(source, compressed, text, recipe="int8", reference=reference)
    assert once.figures() == again.figures()
    assert once.fingerprint == again.fingerprint


def test_weights_that_are_not_numbers_are_refused(source, text, tmp_path: Path) -> None:
    """In a norm that every token meets."""
    compress(source, tmp_path / "out", "int8")
    file = tmp_path / "out" / "model.safetensors"
    place = read_safetensors(file).places["model.norm.weight"]
    raw = bytearray(file.read_bytes())
    raw[place.start : place.start + 2] = np.array([0x7FC0], "<u2").tobytes()
    file.write_bytes(raw)
    with pytest.raises(CheckpointError, match="predictions of the model made by int8 are not"):
        verify(source, Checkpoint.open(tmp_path / "out"), text, recipe="int8")

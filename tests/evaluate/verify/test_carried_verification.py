"""The proof of a checkpoint goes with it where it is true, and nowhere else."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.errors import CheckpointError
from paredown.evaluate.verify.carried_verification import (
    CarriedVerification,
    carry_verification,
    check_verified,
)
from paredown.evaluate.verify.fingerprint import golden_logits, make_fingerprint
from paredown.evaluate.verify.golden import log_probabilities
from paredown.evaluate.verify.verification_file import (
    NAME,
    read_verification,
    write_verification,
)
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint

OPTIONS = RunOptions(num_pages=1, threads=ThreadPlan(prefill=1, decode=1))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in two formats, the first verified."""
    base = tmp_path_factory.mktemp("models")
    make_model("llama", torch.bfloat16, 0, initializer_range=0.08).save_pretrained(base / "source")
    write_byte_tokenizer(base / "source")
    for recipe in ("int8", "int4-g32"):
        compress(Checkpoint.open(base / "source"), base / recipe, recipe)
    checkpoint = Checkpoint.open(base / "int8")
    executor = load_executor(checkpoint, OPTIONS)
    write_verification(base / "int8", {"recipe": "int8"}, make_fingerprint(checkpoint, executor))
    return base


def copied(models: Path, name: str, folder: Path) -> Checkpoint:
    return Checkpoint.open(Path(shutil.copytree(models / name, folder / name)))


def test_a_copy_has_the_logits_of_its_source(models: Path, tmp_path: Path) -> None:
    verified = check_verified(Checkpoint.open(models / "int8"), 1)
    assert verified is not None
    assert (verified.name, verified.figures) == ("int8", {"recipe": "int8"})
    written = copied(models, "int8", tmp_path)
    carried = carry_verification(verified, written, 1)
    assert carried == CarriedVerification(
        source="int8", same_logits=True, difference=pytest.approx(0, abs=1e-4)
    )
    assert carried.words == "the logits of int8, bit for bit"
    found = read_verification(written.path)
    assert found is not None
    figures, fingerprint = found
    assert figures == {
        "converted": carried.as_json(),
        "held_bytes": load_executor(written, OPTIONS).weight_bytes,
        "notes": [],
        "source": {"recipe": "int8"},
    }
    assert fingerprint.golden == verified.golden
    again = check_verified(written, 1)
    assert again is not None, "what was carried is checked like any other"
    assert again.golden == verified.golden


def test_other_weights_are_told_by_how_far_they_are(models: Path, tmp_path: Path) -> None:
    """And get golden logits of their own."""
    verified = check_verified(Checkpoint.open(models / "int8"), 1)
    assert verified is not None
    written = copied(models, "int4-g32", tmp_path)
    carried = carry_verification(verified, written, 1)
    executor = load_executor(written, OPTIONS)
    sampled = np.array(verified.golden.sampled_TK)
    found = log_probabilities(golden_logits(executor), sampled)
    sample = np.array(verified.golden.log_probabilities_TK)
    expected = np.sqrt(((found - sample) ** 2).sum() / (sample**2).sum())
    assert not carried.same_logits
    assert carried.difference == pytest.approx(expected, rel=1e-6)
    assert carried.difference > 1e-3
    assert f"differ from those of int8 by {carried.difference:.1g}" in carried.words
    own = read_verification(written.path)
    assert own is not None
    assert own[1].golden != verified.golden
    assert check_verified(written, 1) is not None


def test_what_is_not_finite_is_null() -> None:
    carried = CarriedVerification(source="a", same_logits=False, difference=np.inf)
    assert carried.as_json() == {"source": "a", "same_logits": False, "difference": None}
    assert replace(carried, difference=0.25).as_json()["difference"] == 0.25


def test_without_a_proof_there_is_none_to_carry(models: Path) -> None:
    assert check_verified(Checkpoint.open(models / "int4-g32")) is None


def test_a_source_that_is_not_what_it_was_carries_nothing(models: Path, tmp_path: Path) -> None:
    source = copied(models, "int8", tmp_path)
    shutil.copyfile(models / "int4-g32" / "model.safetensors", source.path / "model.safetensors")
    shutil.copyfile(models / "int4-g32" / "config.json", source.path / "config.json")
    with pytest.raises(CheckpointError, match="is not the file that was verified"):
        check_verified(Checkpoint.open(source.path), 1)
    assert (source.path / NAME).is_file()

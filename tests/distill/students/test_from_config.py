"""A student of a config is random by its seed alone, has its teacher's tokens, and runs in
Transformers as here."""

import json
from pathlib import Path

import pytest
import torch

from distill.students.test_width import check_logits, save
from fakes.tiny_models import CLASSES, make_model
from paredown.distill.students import from_config as module
from paredown.distill.students.make_student import make_student
from paredown.distill.students.student_choice import StudentChoice
from paredown.errors import CapacityError, CheckpointError, ConfigError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("models") / "teacher"
    return Checkpoint.open(save(folder, make_model("llama", torch.bfloat16, 4)))


def write_config(folder: Path, family: str = "llama", **changes: object) -> Path:
    config_class, _, sizes = CLASSES[family]
    config_class(**(sizes | {"num_hidden_layers": 2})).save_pretrained(folder)
    path = folder / "config.json"
    found = json.loads(path.read_text())
    found["architectures"] = [CLASSES[family][1].__name__]
    found |= changes
    path.write_text(json.dumps({name: one for name, one in found.items() if one is not None}))
    return path


def made(teacher: Checkpoint, config: Path, output: Path, seed: int = 0) -> Checkpoint:
    make_student(teacher, StudentChoice.parse(str(config)), output, seed)
    return Checkpoint.open(output)


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "gemma2", "qwen3_moe", "olmo2"])
def test_families_run_in_transformers(family: str, teacher: Checkpoint, tmp_path: Path) -> None:
    config = write_config(tmp_path / "shape", family)
    student = made(teacher, config, tmp_path / "out")
    assert student.spec.num_layers == 2
    assert Tokenizer.open(tmp_path / "out").vocabulary == Tokenizer.open(teacher.path).vocabulary
    check_logits(tmp_path / "out")


def test_weights_are_those_of_the_seed(teacher: Checkpoint, tmp_path: Path) -> None:
    config = write_config(tmp_path / "shape", hidden_size=96, dtype="float32")
    first, again, other = (
        Decoder.from_checkpoint(made(teacher, config, tmp_path / f"out{number}", seed)).state_dict()
        for number, seed in enumerate((3, 3, 4))
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    name = "layers.1.up.weight"
    assert not torch.equal(first[name], other[name])
    assert first[name].std() == pytest.approx(0.2, rel=0.05)  # its initializer_range
    assert not torch.equal(first[name], first["layers.0.up.weight"])
    assert (first["final_norm.weight"] == 1).all()


def test_norms_that_are_stored_minus_one_change_nothing(
    teacher: Checkpoint, tmp_path: Path
) -> None:
    student = made(teacher, write_config(tmp_path / "shape", "gemma2"), tmp_path / "out")
    assert (Decoder.from_checkpoint(student).state_dict()["final_norm.weight"] == 0).all()


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"vocab_size": 310}, ConfigError, r"vocab_size 310, and 300 of the teacher"),
        ({"hidden_size": "wide"}, CheckpointError, "hidden_size"),
        ({"hidden_size": None}, CheckpointError, "hidden_size"),
        ({"model_type": "mamba"}, UnsupportedError, "mamba"),
        ({"initializer_range": -1}, CheckpointError, "initializer_range"),
    ],
)
def test_a_config_that_does_not_fit_is_told(
    changes: dict[str, object],
    kind: type[Exception],
    says: str,
    teacher: Checkpoint,
    tmp_path: Path,
) -> None:
    with pytest.raises(kind, match=says):
        made(teacher, write_config(tmp_path / "shape", **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_student_that_does_not_fit_in_memory_is_told(
    teacher: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "available_memory_bytes", lambda: 1000)
    with pytest.raises(CapacityError, match="does not fit in memory"):
        made(teacher, write_config(tmp_path / "shape"), tmp_path / "out")


def test_what_another_model_said_of_itself_is_left_out(teacher: Checkpoint, tmp_path: Path) -> None:
    section = {"kept_layers": [0, 3]}
    config = write_config(tmp_path / "shape", paredown=section, quantization_config={"bits": 4})
    student = made(teacher, config, tmp_path / "out")
    assert student.kept_layers is None
    assert not student.is_quantized

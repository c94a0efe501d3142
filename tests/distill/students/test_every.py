"""Every k-th layer of the teacher, bit for bit, in a folder that says which they were."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.distill.students.every import parse_every
from paredown.distill.students.make_student import make_student
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint


def write_teacher(folder: Path, family: str = "llama", **changes: object) -> Checkpoint:
    make_model(family, torch.bfloat16, 4, num_hidden_layers=5, **changes).save_pretrained(folder)
    byte_level().save(str(folder / "tokenizer.json"))
    return Checkpoint.open(folder)


@pytest.mark.parametrize(("k", "kept"), [(2, (0, 2, 4)), (3, (0, 3)), (9, (0,))])
def test_the_layers_are_the_teachers(k: int, kept: tuple[int, ...], tmp_path: Path) -> None:
    teacher = write_teacher(tmp_path / "teacher")
    make_student(teacher, f"every-{k}", tmp_path / "out")
    student = Checkpoint.open(tmp_path / "out")
    assert student.kept_layers == kept
    assert student.spec.layers == tuple(teacher.spec.layers[layer] for layer in kept)
    for index, layer in enumerate(kept):
        for role in ("q", "down"):
            own, theirs = student.linear(role, index), teacher.linear(role, layer)
            assert np.array_equal(own.dequantize(), theirs.dequantize())
    assert {tensor.dtype for tensor in student.tensors.values()} == {"BF16"}
    twice = tmp_path / "twice"
    if len(kept) > 1:
        make_student(student, "every-2", twice)
        assert Checkpoint.open(twice).kept_layers == kept[::2]


def test_layers_of_two_kinds_keep_their_kinds(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    kinds += ["full_attention", "full_attention"]
    teacher = write_teacher(tmp_path / "teacher", "gemma3_text", layer_types=kinds)
    make_student(teacher, "every-2", tmp_path / "out")
    windows = [layer.attention.window for layer in Checkpoint.open(tmp_path / "out").spec.layers]
    assert windows == [teacher.spec.layers[layer].attention.window for layer in (0, 2, 4)]
    assert len(set(windows)) == 2


@pytest.mark.parametrize(
    "choice", ["every-1", "every-0", "every-", "every-2x", "half", "", "no/folder"]
)
def test_what_makes_no_student_is_refused(choice: str, tmp_path: Path) -> None:
    teacher = write_teacher(tmp_path / "teacher")
    with pytest.raises(ConfigError, match="student"):
        make_student(teacher, choice, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_is_read() -> None:
    assert [parse_every(name) for name in ("every-2", "every-12", "kl")] == [2, 12, None]

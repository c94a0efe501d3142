"""Every k-th layer of the teacher, bit for bit, in a folder that says which they were."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.distill.students.make_student import make_student
from paredown.distill.students.student_choice import StudentChoice
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint


def write_teacher(folder: Path, family: str = "llama", **changes: object) -> Checkpoint:
    make_model(family, torch.bfloat16, 4, num_hidden_layers=5, **changes).save_pretrained(folder)
    byte_level().save(str(folder / "tokenizer.json"))
    return Checkpoint.open(folder)


def write_every(teacher: Checkpoint, k: int, output: Path) -> None:
    make_student(teacher, StudentChoice.parse(f"every-{k}"), output)


@pytest.mark.parametrize(("k", "kept"), [(2, (0, 2, 4)), (3, (0, 3)), (5, (0,))])
def test_the_layers_are_the_teachers(k: int, kept: tuple[int, ...], tmp_path: Path) -> None:
    teacher = write_teacher(tmp_path / "teacher")
    write_every(teacher, k, tmp_path / "out")
    student = Checkpoint.open(tmp_path / "out")
    assert student.kept_layers == kept
    assert student.spec.layers == tuple(teacher.spec.layers[layer] for layer in kept)
    for index, layer in enumerate(kept):
        for role in ("q", "down"):
            own, theirs = student.linear(role, index), teacher.linear(role, layer)
            assert np.array_equal(own.dequantize(), theirs.dequantize())
    assert {tensor.dtype for tensor in student.tensors.values()} == {"BF16"}
    if len(kept) > 1:
        write_every(student, 2, tmp_path / "twice")
        assert Checkpoint.open(tmp_path / "twice").kept_layers == kept[::2]


def test_layers_of_two_kinds_keep_their_kinds(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    kinds += ["full_attention", "full_attention"]
    teacher = write_teacher(tmp_path / "teacher", "gemma3_text", layer_types=kinds)
    write_every(teacher, 2, tmp_path / "out")
    windows = [layer.attention.window for layer in Checkpoint.open(tmp_path / "out").spec.layers]
    assert windows == [teacher.spec.layers[layer].attention.window for layer in (0, 2, 4)]
    assert len(set(windows)) == 2


def test_a_teacher_with_fewer_layers_is_refused(tmp_path: Path) -> None:
    teacher = write_teacher(tmp_path / "teacher")
    with pytest.raises(ConfigError, match=r"every-6 of 5 layers.*at most every-5"):
        write_every(teacher, 6, tmp_path / "out")
    assert not (tmp_path / "out").exists()

"""What people type for a student is read, or told to be none."""

from pathlib import Path

import pytest

from paredown.distill.students.student_choice import StudentChoice
from paredown.errors import CheckpointError, ConfigError


def test_choices_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for text, every, width in (
        ("every-2", 2, None),
        ("width-50", None, 50),
        ("every-12+width-5", 12, 5),
        ("width-99+every-3", 3, 99),
    ):
        assert StudentChoice.parse(text) == StudentChoice(text=text, every=every, width=width)
    assert StudentChoice.parse(str(tmp_path)).folder == tmp_path
    assert StudentChoice.parse(str(tmp_path / "config.json")).config == tmp_path / "config.json"


@pytest.mark.parametrize(
    "text",
    [
        *("", "half", "every-", "every-0", "every-2x", "every-2+", "every-2+every-3", "width-0"),
        *("width-5%", "no/folder", "config.json", "every-2 + width-50", "every-2\n", "+"),
    ],
)
def test_what_makes_no_student_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no such student"):
        StudentChoice.parse(text)


@pytest.mark.parametrize("text", ["every-1", "every-1+width-50", "width-100", "width-300"])
def test_what_leaves_the_teacher_as_it_is_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the student would be"):
        StudentChoice.parse(text)


def test_a_changed_config_is_another_student(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"hidden_size": 64}')
    before = StudentChoice.parse(str(path)).fingerprint
    path.write_text('{"hidden_size": 32}')
    assert StudentChoice.parse(str(path)).fingerprint != before
    path.write_text("{")
    with pytest.raises(CheckpointError):
        _ = StudentChoice.parse(str(path)).fingerprint

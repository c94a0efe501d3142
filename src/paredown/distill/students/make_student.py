"""Makes the model that a student starts as."""

from pathlib import Path

from paredown.distill.students.every import parse_every, write_every
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint


def check_student(choice: str) -> None:
    """Raises ConfigError for a choice that `make_student` does not know."""
    if parse_every(choice) is None:
        raise ConfigError(
            "there is no such student",
            seen=choice,
            remedy="Give every-2 for every second layer, or the folder of a checkpoint.",
        )


def make_student(teacher: Checkpoint, choice: str, output: Path) -> None:
    """Writes the folder `output` with the student that `choice` names. Raises ConfigError for an
    unknown choice or one that leaves the teacher as it is, UnsupportedError for what cannot be made
    of this teacher, and OutputError."""
    check_student(choice)
    k = parse_every(choice)
    assert k is not None
    write_every(teacher, k, output)

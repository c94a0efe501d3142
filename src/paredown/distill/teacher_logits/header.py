"""The header of stored distributions: of which teacher, tokens and text they are.

A JSON object in header.json. It is written first and never changes.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from paredown.distill.arithmetic import Arithmetic
from paredown.errors import CheckpointError, ConfigError
from paredown.files.own_file import read_own_file
from paredown.models.files.whole_file import unreadable, whole_file
from paredown.units import MEBI

NAME = "header.json"
VERSION = 1
_MAX_BYTES = MEBI
# What each field that must agree is to people.
_MEANINGS = {
    "version": "version of the format",
    "keep": "what is kept",
    "missing_mass": "rule for what is not kept",
    "teacher": "teacher",
    "tokenizer": "tokenizer",
    "rows": "training and held-out text",
    "seed": "seed of the draws",
    "vocab_size": "size of the vocabulary",
    "num_rows": "number of rows",
    "arithmetic": "arithmetic of the teacher",
}


@dataclass(frozen=True, kw_only=True)
class Header:
    """`keep` and `missing_mass` say what is kept and what stands for the rest; `teacher`,
    `tokenizer` and `rows` are SHA-256 digests. `seed` is that of the draws."""

    keep: str
    missing_mass: str
    vocab_size: int
    num_rows: int
    seed: int
    teacher: str
    tokenizer: str
    rows: str
    arithmetic: Arithmetic
    version: int = VERSION

    def check_same(self, wanted: "Header", path: Path, *, is_whole: bool) -> None:
        """Raises ConfigError that names the first difference. Once all rows are there, in which
        arithmetic the teacher ran may differ."""
        for name, meaning in _MEANINGS.items():
            own, theirs = getattr(self, name), getattr(wanted, name)
            if own != theirs and not (is_whole and name == "arithmetic"):
                raise ConfigError(
                    f"the teacher's distributions in {path} are not those of this run: another "
                    f"{meaning}",
                    seen=f"{own}, and {theirs} is needed",
                    remedy="Give another folder (--teacher-logits), or remove this one.",
                )

    @property
    def digest(self) -> str:
        """The SHA-256 of all fields."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Raises OutputError."""
        with whole_file(folder / NAME) as file:
            file.write((json.dumps(asdict(self), indent=2) + "\n").encode())


def read_header(folder: Path) -> Header | None:
    """Returns the header; None where there is none. Raises CheckpointError for one that this
    program cannot have written."""
    path = folder / NAME
    try:
        found = json.loads(read_own_file(path, _MAX_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    kinds = {field.name: field.type for field in fields(Header) if field.name != "arithmetic"}
    kinds["arithmetic"] = str
    if not isinstance(found, dict) or {one: type(value) for one, value in found.items()} != kinds:
        raise _damaged(path, "other fields than a header has")
    return Header(**found)


def _damaged(path: Path, seen: object) -> CheckpointError:
    return CheckpointError(
        f"{path} is no header of a teacher's distributions",
        seen=seen,
        remedy="Give another folder (--teacher-logits), or remove this one.",
    )

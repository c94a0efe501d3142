"""TrainingFolder: the folder of an unfinished training, from which a killed run can resume.

    training.pt   the state after a step: weights, optimizer, place in the text, random numbers
    lock          held by the running process

The file is replaced in one rename. The folder must be the user's own (files/own_folder.py), since
its contents become weights.
"""

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from paredown.errors import ConfigError
from paredown.files.own_file import open_own_file
from paredown.models.files.locked_folder import LOCK, locked_folder
from paredown.models.files.whole_file import whole_file

_STATE = "training.pt"
# Names that a run gives to files here, temporary ones included; no other file is removed.
_OWN_NAME = re.compile(r"training\.pt|\.training\.pt\.[0-9a-f]{8}\.partial")
# What a damaged file can raise while it is read.
_DAMAGES = (OSError, RuntimeError, ValueError, KeyError, TypeError, EOFError, pickle.PickleError)


def training_path(output: Path) -> Path:
    """Returns the hidden path beside the future checkpoint."""
    return output.absolute().with_name(f".{output.name}.training")


@dataclass(frozen=True, kw_only=True)
class TrainingFolder:
    """Use `open_training_folder`. Only a state of the same `fingerprint` is read."""

    path: Path
    fingerprint: str

    def save(self, state: dict[str, Any]) -> None:
        """Replaces the state. Raises OutputError for a full disk; the state before it stays."""
        with whole_file(self.path / _STATE) as file:
            torch.save(state | {"fingerprint": self.fingerprint}, file)

    def load(self) -> dict[str, Any] | None:
        """Returns the state; None if there is none of the same run. Tensors alone are read, and no
        code."""
        try:
            with open_own_file(self.path / _STATE) as file:
                state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
            if state["fingerprint"] == self.fingerprint:
                return state
        except _DAMAGES:
            pass
        return None


@contextmanager
def open_training_folder(path: Path, fingerprint: str) -> Iterator[TrainingFolder]:
    """Yields the folder, which is removed at the end, and on a wrong option; a kill, an interrupt,
    a full disk or numbers gone astray leave it. Raises OutputError if another process works there,
    if it cannot be made, or if another user could have made its contents."""
    with locked_folder(path, "training"):
        for entry in path.iterdir():
            if entry.name != _STATE and _OWN_NAME.fullmatch(entry.name):
                entry.unlink()
        try:
            yield TrainingFolder(path=path, fingerprint=fingerprint)
        except ConfigError:
            with suppress(OSError):  # the original error is raised, even if files remain
                _remove(path)
            raise
        _remove(path)


def _remove(path: Path) -> None:
    """Removes the files, and the folder unless it holds something else."""
    for entry in path.iterdir():
        if _OWN_NAME.fullmatch(entry.name):
            entry.unlink()
    (path / LOCK).unlink(missing_ok=True)
    with suppress(OSError):
        path.rmdir()

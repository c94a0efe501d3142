"""The folders of a recipe's finished stages (jobs/run_recipe.py), hidden beside the output.

    state.json   the fingerprint of the run, and the finished stages with their notes
    0-cut        what a stage wrote, each a whole checkpoint

A killed run goes on after the last stage that is whole. The folder must be the user's own
(files/own_folder.py), since what lies there becomes weights.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.files.own_file import read_own_file
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.locked_folder import locked_folder
from paredown.models.files.whole_file import whole_file
from paredown.units import MEBI

_STATE = "state.json"
# All names that a run gives to what lies here, unfinished folders included; no other is removed.
_OWN_NAME = re.compile(
    r"state\.json|lock|\.?(\d+-(cut|prune|recover|student)|last-quantize)(\.[\w.]+)?"
    r"|\.state\.json\.[0-9a-f]{8}\.partial"
)
_MAX_STATE_BYTES = 16 * MEBI

# Writes a folder, and returns the notes on it.
MakeStage = Callable[[Path], tuple[str, ...]]


def stages_path(output: Path) -> Path:
    """Returns the hidden path beside the future checkpoint."""
    return output.absolute().with_name(f".{output.name}.stages")


@dataclass
class Stages:
    """Use `open_stages`. `finished` has the notes of each finished stage, by its name."""

    path: Path
    fingerprint: str
    finished: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def make(self, name: str, make: MakeStage) -> Checkpoint:
        """Returns the checkpoint of that stage, which `make` writes unless an earlier run did."""
        place = self.path / name
        if name not in self.finished:
            if place.exists():
                shutil.rmtree(place)
            self.finished[name] = make(place)
            self._write_state()
        return Checkpoint.open(place)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all finished stages, in order."""
        return tuple(note for notes in self.finished.values() for note in notes)

    def _write_state(self) -> None:
        state = {"fingerprint": self.fingerprint, "finished": self.finished}
        with whole_file(self.path / _STATE) as file:
            file.write((json.dumps(state, indent=2) + "\n").encode())


@contextmanager
def open_stages(path: Path, fingerprint: str) -> Iterator[Stages]:
    """Resumes a run of the same fingerprint, or starts anew. The folder is removed at the end, and
    on errors that would occur again; a kill, an interrupt or a full disk leaves it. Raises
    OutputError as `locked_folder` does."""
    with locked_folder(path, "stages"):
        stages = _read(path, fingerprint)
        try:
            yield stages
        except (CheckpointError, ConfigError, UnsupportedError):
            with suppress(OSError):  # the original error is raised, even if files remain
                _remove(path)
            raise
        _remove(path)


def _read(path: Path, fingerprint: str) -> Stages:
    """Returns the folder's state if it can be trusted, else no finished stage."""
    try:
        state = json.loads(read_own_file(path / _STATE, _MAX_STATE_BYTES))
        if state["fingerprint"] == fingerprint:
            finished = {
                str(name): tuple(map(str, notes)) for name, notes in state["finished"].items()
            }
            if all((path / name).is_dir() for name in finished):
                return Stages(path=path, fingerprint=fingerprint, finished=finished)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return Stages(path=path, fingerprint=fingerprint)


def _remove(path: Path) -> None:
    """Removes what runs put there, and the folder unless it holds something else."""
    for entry in path.iterdir():
        if _OWN_NAME.fullmatch(entry.name):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    with suppress(OSError):
        path.rmdir()

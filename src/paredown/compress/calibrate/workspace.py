"""Workspace: the folder of an unfinished calibration, from which a killed run can resume.

    state.json           the fingerprint of the run, the number of finished layers, their notes
    inputs-00003.f32     the inputs of layer 3 (activation_file.py)
    inputs-00003-o_input.f32  intermediate values of the layer in progress (passes.py)
    layer-00002.safetensors   the finished tensors of layer 2, as they will be in the checkpoint
    lock                 held by the running process

A layer counts as finished when state.json says so; it is replaced in one rename after the other
files are complete. The folder must be the user's own (files/own_folder.py), since its contents
become weights.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.files.own_file import read_own_file
from paredown.formats.tensor import StoredTensor
from paredown.models.files.locked_folder import LOCK, check_locked_folder, locked_folder
from paredown.models.files.safetensors_file import read_safetensors, write_safetensors
from paredown.models.files.whole_file import whole_file
from paredown.units import MEBI

STATE = "state.json"
# The prefix of activation files.
INPUTS = "inputs-"
# The prefix of the files of finished layers.
FINISHED = "layer-"
# All names that a run gives to files here, temporary ones included; no other file is removed.
_OWN_NAME = re.compile(
    r"state\.json|inputs-\d{5}(-\w+)?\.(f32|partial)|layer-\d{5}\.safetensors"
    r"|\.(state\.json|layer-\d{5}\.safetensors)\.[0-9a-f]{8}\.partial"
)
_MAX_STATE_BYTES = 16 * MEBI


def workspace_path(output: Path) -> Path:
    """Returns the hidden path beside the future checkpoint."""
    return output.absolute().with_name(f".{output.name}.calibration")


@dataclass
class Workspace:
    """Use `open_workspace`. `num_finished` counts layers, in order; `notes` are theirs."""

    path: Path
    fingerprint: str
    num_finished: int = 0
    notes: list[str] = field(default_factory=list)
    resumed: bool = False

    def inputs(self, layer: int, shape: tuple[int, int, int]) -> ActivationFile:
        """Returns the file of the inputs of `layer`; `shape` is (sequences, tokens, columns)."""
        return self._activations(f"{layer:05d}", shape)

    def inside(self, layer: int, point: str, shape: tuple[int, int, int]) -> ActivationFile:
        """Returns the file of the values at that point of `layer`."""
        return self._activations(f"{layer:05d}-{point}", shape)

    def _activations(self, place: str, shape: tuple[int, int, int]) -> ActivationFile:
        return ActivationFile(
            path=self.path / f"{INPUTS}{place}.f32",
            num_sequences=shape[0],
            num_tokens=shape[1],
            num_columns=shape[2],
        )

    def finish(self, tensors: Mapping[str, StoredTensor], notes: list[str]) -> None:
        """Writes the tensors of the next layer and counts it as finished."""
        write_safetensors(self._layer_path(self.num_finished), tensors)
        self.notes += notes
        self.num_finished += 1
        self._write_state()
        stale = self.path / f"{INPUTS}{self.num_finished - 1:05d}.f32"
        stale.unlink(missing_ok=True)

    def tensors(self) -> dict[str, StoredTensor]:
        """Returns all finished tensors, mapped."""
        found: dict[str, StoredTensor] = {}
        for layer in range(self.num_finished):
            mapped = read_safetensors(self._layer_path(layer))
            found |= {name: mapped[name] for name in mapped}
        return found

    def _layer_path(self, layer: int) -> Path:
        return self.path / f"{FINISHED}{layer:05d}.safetensors"

    def _write_state(self) -> None:
        state = {
            "fingerprint": self.fingerprint,
            "num_finished": self.num_finished,
            "notes": self.notes,
        }
        with whole_file(self.path / STATE) as file:
            file.write((json.dumps(state, indent=2) + "\n").encode())


def check_workspace(path: Path) -> None:
    """Checks the folder before long work. Raises OutputError for one that another user could have
    made."""
    check_locked_folder(path)


@contextmanager
def open_workspace(path: Path, fingerprint: str) -> Iterator[Workspace]:
    """Resumes a run of the same fingerprint, or starts anew. The folder is removed at the end, and
    on errors that would occur again; a kill, an interrupt or a full disk leaves it. Raises
    OutputError if another process works there, if it cannot be made, or if another user could have
    made its contents."""
    with locked_folder(path, "calibration"):
        workspace = _read(path, fingerprint)
        try:
            yield workspace
        except (CheckpointError, ConfigError, UnsupportedError):
            with suppress(OSError):  # the original error is raised, even if files remain
                _remove(path)
            raise
        _remove(path)


def _read(path: Path, fingerprint: str) -> Workspace:
    """Returns the folder's state if it can be trusted, else an empty workspace."""
    try:
        state = json.loads(read_own_file(path / STATE, _MAX_STATE_BYTES))
        found = Workspace(
            path=path,
            fingerprint=fingerprint,
            num_finished=int(state["num_finished"]),
            notes=[str(note) for note in state["notes"]],
            resumed=True,
        )
        if state["fingerprint"] == fingerprint:
            return found
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    _clear(path)
    return Workspace(path=path, fingerprint=fingerprint)


def _clear(path: Path) -> None:
    """Removes the files of runs."""
    for entry in path.iterdir():
        if _OWN_NAME.fullmatch(entry.name):
            entry.unlink()


def _remove(path: Path) -> None:
    """Removes the files, and the folder unless it holds something else."""
    _clear(path)
    (path / LOCK).unlink(missing_ok=True)
    with suppress(OSError):
        path.rmdir()

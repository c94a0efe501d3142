"""Folders of finished stages: what is whole is taken again, and nothing else is touched."""

import json
from pathlib import Path

import pytest
import torch

from fakes.tiny_models import make_model
from paredown.errors import CheckpointError, OutputError
from paredown.jobs.stages import open_stages, stages_path


def write_model(place: Path) -> tuple[str, ...]:
    make_model("llama", torch.float32, 0).save_pretrained(place)
    return ("a note",)


def refuse(place: Path) -> tuple[str, ...]:
    raise AssertionError("made again")


def interrupt(place: Path) -> tuple[str, ...]:
    raise KeyboardInterrupt


def two_stages(path: Path) -> None:
    with open_stages(path, "one") as stages:
        stages.make("0-cut", write_model)
        stages.make("1-prune", interrupt)


def leave(path: Path) -> None:
    """Leaves one finished stage, as a run that is interrupted in the next."""
    with pytest.raises(KeyboardInterrupt):
        two_stages(path)


def test_a_stage_is_made_once(tmp_path: Path) -> None:
    path = stages_path(tmp_path / "out")
    leave(path)
    with open_stages(path, "one") as stages:
        assert stages.make("0-cut", refuse).spec.num_layers > 0
        assert stages.notes == ("a note",)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["another run", "a lost folder", "an odd state", "no state"])
def test_what_cannot_be_trusted_is_made_again(tmp_path: Path, damage: str) -> None:
    path = stages_path(tmp_path / "out")
    leave(path)
    state = path / "state.json"
    if damage == "a lost folder":
        (path / "0-cut").rename(path / "1-prune")
    elif damage == "an odd state":
        state.write_text(json.dumps({"fingerprint": "one", "finished": 3}))
    elif damage == "no state":
        state.unlink()
    with open_stages(path, "two" if damage == "another run" else "one") as stages:
        made = []
        stages.make("0-cut", lambda place: (made.append(place), write_model(place))[1])
        assert made == [path / "0-cut"]


def test_other_files_stay(tmp_path: Path) -> None:
    path = stages_path(tmp_path / "out")
    leave(path)
    (path / "mine").touch()
    with pytest.raises(CheckpointError), open_stages(path, "one"):
        raise CheckpointError("broken", seen=1, remedy="None.")
    assert [one.name for one in path.iterdir()] == ["mine"]


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    path = stages_path(tmp_path / "out")
    path.mkdir()
    path.chmod(0o777)
    with (
        pytest.raises(OutputError, match="not a folder that an earlier run"),
        open_stages(path, "one"),
    ):
        pass

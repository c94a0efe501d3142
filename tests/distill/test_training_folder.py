"""The folder of an unfinished training: one process at a time, and nothing of others is removed."""

from contextlib import suppress
from pathlib import Path

import pytest
import torch

from paredown.distill.training_folder import (
    TrainingFolder,
    open_training_folder,
    training_path,
)
from paredown.errors import ConfigError, OutputError, TrainingError


def leave(path: Path, error: Exception) -> None:
    """Leaves a state behind, if the error does."""
    with suppress(type(error)), open_training_folder(path, "one") as folder:
        folder.save({"records": [1], "weight": torch.ones(2)})
        raise error


def load(path: Path, fingerprint: str) -> dict[str, object] | None:
    return TrainingFolder(path=path, fingerprint=fingerprint).load()


def test_a_state_is_read_by_the_same_run_alone(tmp_path: Path) -> None:
    path = training_path(tmp_path / "out")
    assert path == tmp_path / ".out.training"
    leave(path, TrainingError("no number", seen="nan", remedy="Give a lower rate."))
    state = load(path, "one")
    assert state is not None
    assert state["records"] == [1]
    assert load(path, "two") is None


def test_it_is_removed_at_the_end_and_on_a_wrong_option(tmp_path: Path) -> None:
    leave(tmp_path / "a", ConfigError("wrong", seen=0, remedy="Give more."))
    with open_training_folder(tmp_path / "b", "one") as folder:
        folder.save({})
        (tmp_path / "b" / "notes.txt").write_text("mine")
    assert not (tmp_path / "a").exists()
    assert [one.name for one in (tmp_path / "b").iterdir()] == ["notes.txt"]


def test_half_a_state_is_removed_and_others_files_stay(tmp_path: Path) -> None:
    leave(tmp_path / "a", KeyError("stopped"))
    (tmp_path / "a" / ".training.pt.01234567.partial").write_text("half")
    (tmp_path / "a" / "mine.pt").write_text("mine")
    with open_training_folder(tmp_path / "a", "one") as folder:
        assert folder.load() is not None
        assert {one.name for one in folder.path.iterdir()} == {"lock", "training.pt", "mine.pt"}


def test_code_in_a_state_is_not_run(tmp_path: Path) -> None:
    with open_training_folder(tmp_path / "a", "one") as folder:
        torch.save({"fingerprint": "one", "path": Path("/")}, tmp_path / "a" / "training.pt")
        assert folder.load() is None


def test_two_processes_do_not_share_it(tmp_path: Path) -> None:
    with (
        open_training_folder(tmp_path / "a", "one"),
        pytest.raises(OutputError, match="another process is at the training"),
        open_training_folder(tmp_path / "a", "one"),
    ):
        pass


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with (
        pytest.raises(OutputError, match="not a folder that an earlier run"),
        open_training_folder(tmp_path / "link", "one"),
    ):
        pass

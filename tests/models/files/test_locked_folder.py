"""Folders of unfinished work are the user's own, and one process works there."""

import stat
from pathlib import Path

import pytest

from paredown.errors import OutputError
from paredown.models.files.locked_folder import LOCK, check_locked_folder, locked_folder


def test_a_folder_is_private_and_stays(tmp_path: Path) -> None:
    place = tmp_path / "deep" / ".out.work"
    with locked_folder(place, "a test"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        (place / "kept").touch()
    with locked_folder(place, "a test"):
        assert (place / "kept").exists()
    assert stat.S_IMODE((place / LOCK).stat().st_mode) == 0o600


def test_one_process_works_there(tmp_path: Path) -> None:
    with (
        locked_folder(tmp_path / "work", "a test"),
        pytest.raises(OutputError, match="another process"),
        locked_folder(tmp_path / "work", "a test"),
    ):
        pass
    with locked_folder(tmp_path / "work", "a test"):
        pass


@pytest.mark.parametrize("kind", ["a link", "open to others"])
def test_what_another_user_can_have_made_is_refused(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "work"
    if kind == "a link":
        (tmp_path / "real").mkdir()
        place.symlink_to(tmp_path / "real")
    else:
        place.mkdir()
        place.chmod(0o777)
    with pytest.raises(OutputError, match="not a folder that an earlier run"):
        check_locked_folder(place)
    with pytest.raises(OutputError, match="rm -r"), locked_folder(place, "a test"):
        pass


def test_a_place_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(OutputError, match="cannot be made"),
        locked_folder(tmp_path / "file" / "work", "a test"),
    ):
        pass
    check_locked_folder(tmp_path / "nothing here")

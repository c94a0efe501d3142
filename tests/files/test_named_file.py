"""Regular files alone are read, and no more of them than is allowed for."""

import os
from pathlib import Path

import pytest

from paredown.files.named_file import open_named_file, read_named_file, read_whole
from paredown.files.refused_file import RefusedFileError


def test_a_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"text")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "b"):
        assert read_named_file(tmp_path / name, 4) == b"text"
    with pytest.raises(RefusedFileError, match="at most 3 B are read"):
        read_named_file(tmp_path / "a", 3)


def test_a_file_that_grows_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"text")
    with open_named_file(path) as file:
        before = os.fstat(file.fileno())
        path.write_bytes(b"longer text")
        monkeypatch.setattr(os, "fstat", lambda _: before)
        with pytest.raises(RefusedFileError, match="it grew"):
            read_whole(file, path, 100)


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(RefusedFileError, match="not a file"):
            open_named_file(path)


def test_a_pipe_that_takes_the_place_of_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the look and the opening."""
    path = tmp_path / "a"
    path.write_text("")
    stat = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda _: stat)
    with pytest.raises(RefusedFileError, match="a pipe"):
        open_named_file(path)

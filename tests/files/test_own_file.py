"""What is read as our own is ours."""

import os
from pathlib import Path

import pytest

from paredown.files.own_file import extend_own_file, open_own_file, read_own_file
from paredown.files.refused_file import RefusedFileError


def test_a_file_of_the_users_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    assert read_own_file(tmp_path / "a", 4) == b"mine"
    with pytest.raises(RefusedFileError, match="at most"):
        read_own_file(tmp_path / "a", 3)
    with pytest.raises(FileNotFoundError):
        read_own_file(tmp_path / "b", 3)


def test_a_file_of_the_users_is_extended(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with extend_own_file(tmp_path / "a") as file:
        file.truncate(2)
        file.seek(2)
        file.write(b"nd")
    assert (tmp_path / "a").read_text() == "mind"
    with pytest.raises(FileNotFoundError):
        extend_own_file(tmp_path / "b")


@pytest.mark.parametrize("kind", ["link", "written by all", "of another", "pipe"])
def test_all_else_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    (tmp_path / "b").write_text("mine")
    if kind == "link":
        path.symlink_to("b")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("theirs")
    if kind == "written by all":
        path.chmod(0o666)
    if kind == "of another":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(path, 65534, 65534)
    for opens in (open_own_file, extend_own_file):
        with pytest.raises(RefusedFileError):
            opens(path)
    assert (tmp_path / "b").read_text() == "mine"

"""A folder is ours where nobody else can have put anything into it."""

import os
import stat
from pathlib import Path

import pytest

from paredown.files.own_folder import check_own_folder, make_new_folder, make_own_folder
from paredown.files.refused_file import RefusedFileError

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_new_folder_is_for_the_user_alone(tmp_path: Path) -> None:
    assert make_own_folder(tmp_path / "a")
    assert mode(tmp_path / "a") == 0o700
    assert not make_own_folder(tmp_path / "a")


def test_one_that_others_could_only_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    check_own_folder(tmp_path / "a")
    assert not make_own_folder(tmp_path / "a")
    assert mode(tmp_path / "a") == 0o700


@pytest.mark.parametrize("bits", [0o777, 0o775, 0o702, 0o1777])
def test_one_that_others_can_write_to_is_refused_and_stays_as_it_was(
    tmp_path: Path, bits: int
) -> None:
    path = tmp_path / "a b"
    path.mkdir()
    path.chmod(bits)
    for use in (make_own_folder, check_own_folder):
        with pytest.raises(RefusedFileError, match="others can write") as caught:
            use(path)
        assert f"chmod 700 '{path}'" in caught.value.remedy
    assert mode(path) == bits


@needs_root
def test_one_of_another_user_is_refused(tmp_path: Path) -> None:
    make_own_folder(tmp_path / "a")
    os.chown(tmp_path / "a", NOBODY, NOBODY)
    for use in (make_own_folder, check_own_folder):
        with pytest.raises(RefusedFileError, match=f"belongs to user {NOBODY}"):
            use(tmp_path / "a")


@pytest.mark.parametrize("kind", ["link", "link to nowhere", "file", "pipe"])
def test_what_is_no_folder_is_refused_and_stays_as_it_was(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    (tmp_path / "real").mkdir()
    if kind == "link":
        path.symlink_to("real")
    elif kind == "link to nowhere":
        path.symlink_to("nowhere")
    elif kind == "file":
        path.write_text("mine")
    else:
        os.mkfifo(path)
    before = path.lstat()
    for use in (make_own_folder, check_own_folder):
        with pytest.raises(RefusedFileError, match=r"a link|not a folder"):
            use(path)
    assert path.lstat() == before
    assert not (tmp_path / "nowhere").exists()
    assert mode(tmp_path / "real") == 0o755


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_a_folder_to_be_shown_later_knows_its_mode(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        assert make_new_folder(tmp_path / "a") == 0o777 & ~mask
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == 0o700
    with pytest.raises(FileExistsError):
        make_new_folder(tmp_path / "a")

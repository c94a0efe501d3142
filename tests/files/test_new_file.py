"""Files that are made are new ones."""

import stat
from pathlib import Path

import pytest

from paredown.files.new_file import PRIVATE, make_file, make_raw_file


@pytest.mark.parametrize("make", [make_file, make_raw_file])
def test_nothing_that_is_there_is_touched(make, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "nowhere").symlink_to("new")
    for name in ("mine", "link", "nowhere"):
        with pytest.raises(FileExistsError):
            make(tmp_path / name)
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("make", [make_file, make_raw_file])
def test_what_is_written_can_be_read_back(make, tmp_path: Path) -> None:
    with make(tmp_path / "a", PRIVATE) as file:
        file.write(b"text")
        file.seek(0)
        assert file.read() == b"text"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600

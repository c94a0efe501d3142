"""The cache folder is the one that the environment names, and the user's own."""

import stat
from pathlib import Path

import pytest

from paredown.errors import ConfigError
from paredown.files.refused_file import RefusedFileError
from paredown.files.user_cache import check_named_cache, default_cache, make_cache, named_cache


def test_what_the_environment_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for value in ("off", ""):
        monkeypatch.setenv("PAREDOWN_CACHE", value)
        assert named_cache() is None
    monkeypatch.setenv("PAREDOWN_CACHE", str(tmp_path))
    assert named_cache() == tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "paredown"


def test_without_a_home_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ConfigError, match="PAREDOWN_CACHE"):
        default_cache()
    check_named_cache(Path("/nowhere/at/all"))


def test_a_named_folder_keeps_its_mode_and_the_default_one_is_closed(tmp_path: Path) -> None:
    for name, is_named, mode in (("a", True, 0o755), ("b", False, 0o700)):
        (tmp_path / name).mkdir(mode=0o755)
        assert not make_cache(tmp_path / name, is_named=is_named)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
        assert make_cache(tmp_path / "new" / name, is_named=is_named)
        assert stat.S_IMODE((tmp_path / "new" / name).stat().st_mode) == 0o700


def test_one_that_others_can_write_to_is_refused_with_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match=f"chmod 700 {folder}"):
        check_named_cache(folder)
    with pytest.raises(RefusedFileError):
        make_cache(folder, is_named=True)
    folder.chmod(0o700)
    check_named_cache(folder)
    make_cache(folder, is_named=True)


def test_a_link_is_refused_even_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="a link"):
        check_named_cache(tmp_path / "link")
    with pytest.raises(RefusedFileError):
        make_cache(tmp_path / "link", is_named=True)

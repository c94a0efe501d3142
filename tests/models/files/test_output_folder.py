"""An output folder appears whole or not at all."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from paredown.errors import OutputError
from paredown.models.files.output_folder import check_output_folder, output_folder


def contents(folder: Path) -> dict[str, str]:
    """Every file below `folder`, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def build(out: Path, then: Callable[[], object] = int, overwrite: bool = False) -> None:
    """Writes a file "new" into the output folder, then calls `then`."""
    with output_folder(out, overwrite) as folder:
        (folder / "new").write_text("1")
        then()


def raiser(error: BaseException) -> Callable[[], object]:
    def throw() -> None:
        raise error

    return throw


def test_it_appears_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with output_folder(out) as folder:
        (folder / "a").write_text("1")
        assert not out.exists()
        assert folder.parent == out.parent
        assert folder.name.startswith(".")
    assert contents(tmp_path) == {"out/a": "1"}
    assert list(tmp_path.iterdir()) == [out]


def test_missing_parents_are_created(tmp_path: Path) -> None:
    build(tmp_path / "a" / "b" / "out")
    assert contents(tmp_path) == {"a/b/out/new": "1"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), RuntimeError("x")])
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_exception_leaves_nothing_half_written(
    error: BaseException, overwrite: bool, tmp_path: Path
) -> None:
    out = tmp_path / "a" / "b" / "out"
    if overwrite:
        out.mkdir(parents=True)
        (out / "old").write_text("0")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(type(error)):
        build(out, raiser(error), overwrite)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_half_written(number: signal.Signals, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(number, stop)
    try:
        with pytest.raises(SystemExit):
            build(tmp_path / "out", lambda: signal.raise_signal(number))
    finally:
        signal.signal(number, before)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("0")
    with pytest.raises(OutputError, match=r"exists already \(saw: 1 entries"):
        build(out)
    assert contents(tmp_path) == {"out/old": "0"}


def test_an_existing_folder_is_replaced_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("0")
    build(out, overwrite=True)
    assert contents(tmp_path) == {"out/new": "1"}
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_or_a_link_is_never_replaced(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("0")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for name in ("file", "link"):
        with pytest.raises(OutputError, match="is not a folder"):
            build(tmp_path / name, overwrite=overwrite)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "link"]


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("0")
    for out in (tmp_path / "file" / "out", tmp_path / "file" / "a" / "out"):
        with pytest.raises(OutputError):
            build(out)
    assert contents(tmp_path) == {"file": "0"}


def test_someone_else_takes_the_name_meanwhile(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def take() -> None:
        out.mkdir()
        (out / "theirs").write_text("2")

    with pytest.raises(OutputError, match="could not be written"):
        build(out, take)
    assert contents(tmp_path) == {"out/theirs": "2"}
    assert list(tmp_path.iterdir()) == [out]


def test_a_failed_swap_restores_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("0")
    rename = Path.rename

    def fail_on_partial(self: Path, target: Path) -> Path:
        if self.name.endswith(".partial"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_on_partial)
    with pytest.raises(OutputError, match="Input/output"):
        build(out, overwrite=True)
    assert contents(tmp_path) == {"out/old": "0"}
    assert list(tmp_path.iterdir()) == [out]


def test_a_full_disk_in_the_body_is_an_output_error(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(OutputError, match="No space left"):
        build(tmp_path / "out", raiser(full))
    assert list(tmp_path.iterdir()) == []


def test_another_oserror_of_the_body_passes_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        build(tmp_path / "out", (tmp_path / "no such file").read_text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [240, 256, 5000])
def test_a_name_that_is_too_long(length: int, tmp_path: Path) -> None:
    for make in (check_output_folder, build):
        with pytest.raises(OutputError, match="could not be written"):
            make(tmp_path / ("x" * length))
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("0")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "file/out", "file/a/out", "link", ".", "/", "/proc/1/fdinfo/out"):
        with pytest.raises(OutputError):
            check_output_folder(tmp_path / name)
    check_output_folder(tmp_path / "a" / "b" / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_a_parent_that_may_not_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(OutputError, match=f"{tmp_path} may not be written to"):
        check_output_folder(tmp_path / "a" / "out")

"""Files under way, and processes that clean up behind writers that were killed."""

import fcntl
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paredown.executors.native import partial_file as module
from paredown.executors.native.partial_file import partial_file, remove_leftovers


def partials(folder: Path) -> list[Path]:
    return list(folder.glob(".*.partial"))


def test_a_file_is_there_while_it_is_written_and_gone_afterwards(tmp_path: Path) -> None:
    with partial_file(tmp_path) as (path, file):
        file.write(b"half")
        remove_leftovers(tmp_path)
        assert path.read_bytes() == b"half"
    assert not partials(tmp_path)


def test_a_file_that_is_renamed_stays_and_is_locked_until_the_end(tmp_path: Path) -> None:
    target = tmp_path / "whole"
    with partial_file(tmp_path) as (path, file):
        file.write(b"all")
        path.replace(target)
        with target.open("rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert target.read_bytes() == b"all"
    assert not partials(tmp_path)


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), partial_file(tmp_path):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def remove_it(path: Path) -> Iterator[None]:
    remove_leftovers(path.parent)
    yield


def hold_its_lock(path: Path) -> Iterator[None]:
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@pytest.mark.parametrize("meanwhile", [remove_it, hold_its_lock])
def test_a_file_taken_for_a_leftover_before_it_is_locked_is_made_anew(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Path], Iterator[None]],
) -> None:
    """By another process, which has removed it or is about to."""
    lock = module._is_locked
    taken = list[Path]()

    def lock_too_late(path: Path, file: io.FileIO) -> bool:
        if taken:
            return lock(path, file)
        taken.append(path)
        with contextmanager(meanwhile)(path):
            return lock(path, file)

    monkeypatch.setattr(module, "_is_locked", lock_too_late)
    with partial_file(tmp_path) as (path, _):
        assert partials(tmp_path) == [path]
        assert taken
        assert taken != [path]
    assert not partials(tmp_path)

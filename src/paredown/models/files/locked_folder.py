"""The folder of unfinished work: this user's alone, and one process's at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paredown.errors import OutputError
from paredown.files.new_file import PRIVATE
from paredown.files.own_folder import make_own_folder
from paredown.files.refused_file import RefusedFileError
from paredown.shell_word import shell_path

# Held by the running process.
LOCK = "lock"


def check_locked_folder(path: Path) -> None:
    """Checks the folder before long work. Raises OutputError for one that another user could have
    made."""
    if os.path.lexists(path):
        _make(path)


@contextmanager
def locked_folder(path: Path, work: str) -> Iterator[None]:
    """Makes the folder, or accepts the user's own, and holds its lock. Raises OutputError, which
    calls the work by its name, if another process works there, if the folder cannot be made, or if
    another user could have made its contents."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        lock = os.open(path / LOCK, flags, PRIVATE)
    except OSError as error:
        raise OutputError(
            f"the folder for {work} {path} cannot be made",
            seen=error.strerror or error,
            remedy="Choose another output folder.",
        ) from error
    try:
        _take(lock, path, work)
        yield
    finally:
        os.close(lock)


def _make(path: Path) -> None:
    try:
        make_own_folder(path)
    except RefusedFileError as error:
        raise OutputError(
            f"{path} is not a folder that an earlier run of yours can have left, so it is not used",
            seen=error.strerror,
            remedy=f"Remove it (`rm -r {shell_path(path)}`), or choose another output.",
        ) from error


def _take(lock: int, path: Path, work: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise OutputError(
            f"another process is at the {work} for the same output folder",
            seen=path,
            remedy="Wait for it, or choose another output folder.",
        ) from error

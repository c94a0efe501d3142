"""The folder of unfinished work, hidden beside an output, from which a killed run resumes.

Its contents become weights, so it must be the user's own (own_folder.py), and one process works
there at a time.
"""

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

LOCK = "lock"


def check_work_folder(path: Path) -> None:
    """Checks the folder before long work. Raises OutputError for one that another user could have
    made."""
    if os.path.lexists(path):
        _make(path)


@contextmanager
def locked_work_folder(path: Path) -> Iterator[None]:
    """Makes the folder, or takes one that an earlier run left, and holds its lock. Raises
    OutputError if another process works there, if it cannot be made, or if another user could have
    made its contents."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        lock = os.open(path / LOCK, flags, PRIVATE)
    except OSError as error:
        raise OutputError(
            f"the folder for unfinished work {path} cannot be made",
            seen=error.strerror or error,
            remedy="Choose another output folder.",
        ) from error
    try:
        _take(lock, path)
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


def _take(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise OutputError(
            "another process works for the same output folder",
            seen=path,
            remedy="Wait for it, or choose another output folder.",
        ) from error

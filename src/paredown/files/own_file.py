"""Reads files that are trusted because only the user can have written them."""

import io
import os
from pathlib import Path
from typing import BinaryIO

from paredown.files.named_file import open_checked, read_whole
from paredown.files.own_folder import is_own
from paredown.files.refused_file import RefusedFileError, check_regular


def open_own_file(path: Path) -> BinaryIO:
    """Opens a file of our own folder for reading, without following links. Raises OSError; its
    subclass RefusedFileError says that others can have written it or that it is no regular file."""
    file = open_checked(path, path.lstat(), follows=False)
    try:
        _check_own(file.fileno(), path)
    except BaseException:
        file.close()
        raise
    return file


def read_own_file(path: Path, max_bytes: int) -> bytes:
    """Returns a file's content. Raises what `open_own_file` raises, and RefusedFileError for more
    than `max_bytes`."""
    with open_own_file(path) as file:
        return read_whole(file, path, max_bytes)


def extend_own_file(path: Path) -> io.FileIO:
    """Opens a file of our own folder for reading and writing, unbuffered, as it is. Raises what
    `open_own_file` raises."""
    check_regular(path.lstat(), path)
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = io.FileIO(os.open(path, flags), "r+b")
    try:
        check_regular(os.fstat(file.fileno()), path)
        _check_own(file.fileno(), path)
    except BaseException:
        file.close()
        raise
    return file


def _check_own(descriptor: int, path: Path) -> None:
    found = os.fstat(descriptor)
    if not is_own(found):
        raise RefusedFileError(
            f"others can have written it (user {found.st_uid}, mode {found.st_mode & 0o7777:04o})",
            path,
            remedy="Remove it.",
        )

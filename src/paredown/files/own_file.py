"""Reads files that are trusted because only the user can have written them."""

import os
from pathlib import Path
from typing import BinaryIO

from paredown.files.named_file import open_checked, read_whole
from paredown.files.own_folder import is_own
from paredown.files.refused_file import RefusedFileError


def open_own_file(path: Path) -> BinaryIO:
    """Opens a file of our own folder for reading, without following links. Raises OSError; its
    subclass RefusedFileError says that others can have written it or that it is no regular file."""
    file = open_checked(path, path.lstat(), follows=False)
    found = os.fstat(file.fileno())
    if not is_own(found):
        file.close()
        raise RefusedFileError(
            f"others can have written it (user {found.st_uid}, mode {found.st_mode & 0o7777:04o})",
            path,
            remedy="Remove it.",
        )
    return file


def read_own_file(path: Path, max_bytes: int) -> bytes:
    """Returns a file's content. Raises what `open_own_file` raises, and RefusedFileError for more
    than `max_bytes`."""
    with open_own_file(path) as file:
        return read_whole(file, path, max_bytes)

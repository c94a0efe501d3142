"""Files that are read as our own, because the user alone can have written them."""

import os
from pathlib import Path
from typing import BinaryIO

from paredown.files.named_file import open_checked, read_whole
from paredown.files.own_folder import is_own
from paredown.files.refused_file import RefusedFileError


def open_own_file(path: Path) -> BinaryIO:
    """Opens a file of a folder of ours for reading; no link is followed. Raises OSError, of which
    RefusedFileError says that others can have written it or that it is no regular file."""
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
    """All of a file. Raises what `open_own_file` raises, and RefusedFileError for one of more than
    `max_bytes`."""
    with open_own_file(path) as file:
        return read_whole(file, path, max_bytes)

"""Reads files that a user named: only regular ones, without waiting, and up to a size limit.

Each path is checked before it is opened, because opening a device can have effects, and again
afterwards, because another file may be there by then.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from paredown.files.refused_file import RefusedFileError, check_regular
from paredown.units import format_bytes


def open_named_file(path: Path) -> BinaryIO:
    """Opens a file for reading and follows links, which the user may have set. Raises OSError; its
    subclass RefusedFileError says that it is no regular file."""
    return open_checked(path, path.stat())


def read_named_file(path: Path, max_bytes: int) -> bytes:
    """Returns a file's content. Raises what `open_named_file` raises, and RefusedFileError for more
    than `max_bytes`."""
    with open_named_file(path) as file:
        return read_whole(file, path, max_bytes)


def read_whole(file: BinaryIO, path: Path, max_bytes: int) -> bytes:
    """Returns the content of an open file; `path` is for errors. Raises RefusedFileError for more
    than `max_bytes`, and for a file that grows meanwhile."""
    num_bytes = os.fstat(file.fileno()).st_size
    if num_bytes > max_bytes:
        raise RefusedFileError(
            f"it has {format_bytes(num_bytes)}; at most {format_bytes(max_bytes)} are read",
            path,
            remedy="Check that it is the file that it should be.",
        )
    data = file.read(num_bytes + 1)
    if len(data) > num_bytes:
        raise RefusedFileError(
            f"it grew beyond its {num_bytes} bytes while it was read",
            path,
            remedy="Wait until it is written, then try again.",
        )
    return data


def open_checked(path: Path, found: os.stat_result, *, follows: bool = True) -> BinaryIO:
    """Opens the file that was `found` at `path`. Raises what `open_named_file` raises."""
    check_regular(found, path)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags if follows else flags | os.O_NOFOLLOW)
    try:
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            check_regular(opened, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise

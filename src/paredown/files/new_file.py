"""Creates files, and never opens an existing file or link."""

import io
import os
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Only for the user.
PRIVATE = 0o600
# For everyone whom the user's umask allows.
SHARED = 0o666


def make_file(path: Path, mode: int = SHARED) -> BinaryIO:
    """Creates and opens a file. Raises FileExistsError where the name exists, even as a dangling
    link, and OSError."""
    return os.fdopen(os.open(path, _FLAGS, mode), "w+b")


def make_raw_file(path: Path, mode: int = SHARED) -> io.FileIO:
    """Does what `make_file` does, without a buffer."""
    return io.FileIO(os.open(path, _FLAGS, mode), "w+b")

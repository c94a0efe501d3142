"""Files that are made here: new ones, never what already lies or leads there."""

import io
import os
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# For the user alone.
PRIVATE = 0o600
# For all whom the user's umask leaves in.
SHARED = 0o666


def make_file(path: Path, mode: int = SHARED) -> BinaryIO:
    """Makes and opens a file. Raises FileExistsError where anything has that name, be it a link
    that leads nowhere, and OSError."""
    return os.fdopen(os.open(path, _FLAGS, mode), "w+b")


def make_raw_file(path: Path, mode: int = SHARED) -> io.FileIO:
    """Does what `make_file` does, for a writer with a buffer of its own."""
    return io.FileIO(os.open(path, _FLAGS, mode), "w+b")

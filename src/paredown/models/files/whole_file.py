"""Files that are written whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, OutputError
from paredown.files.new_file import make_file
from paredown.files.refused_file import RefusedFileError

# Bytes per write call, so that an interrupt is noticed between two calls.
WRITE_BYTES = 16 << 20


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file beside `path` that replaces it when the block ends. After any failure `path` is
    as it was and nothing else is left. Raises OutputError when the system cannot write (disk full,
    no permission, ...)."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    is_ours = False
    try:
        with make_file(partial) as file:
            is_ours = True
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        if is_ours:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OutputError(
                f"{path} could not be written",
                seen=error.strerror or error,
                remedy="Free some space or choose another place; nothing was left behind.",
            ) from error
        raise


def write_array(file: BinaryIO, array: npt.NDArray[np.generic]) -> None:
    """Writes the array's bytes chunk by chunk."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, flat.size, WRITE_BYTES):
        file.write(flat[start : start + WRITE_BYTES].data)


def sync_folder(folder: Path) -> None:
    """Makes a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unreadable(path: Path, error: OSError) -> CheckpointError:
    """Returns the error for a file that the system, or files/refused_file.py, does not let us
    read."""
    remedy = "Check that the file exists and that you may read it."
    if isinstance(error, RefusedFileError):
        remedy = error.remedy
    return CheckpointError(f"{path} cannot be read", seen=error.strerror or error, remedy=remedy)


def is_there(path: Path) -> bool:
    """Returns whether something has that name, even if it cannot be opened. A dangling link counts
    as nothing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True

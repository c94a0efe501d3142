"""RefusedFileError: a file or folder that is refused for its kind, not its content."""

import errno
import os
import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class RefusedFileError(OSError):
    """A refused file. `strerror` says what it is, `remedy` what to do about it."""

    strerror: str

    def __init__(self, reason: str, path: Path, *, remedy: str) -> None:
        super().__init__(errno.EPERM, reason, str(path))
        self.remedy = remedy


def check_regular(found: os.stat_result, path: Path) -> None:
    """Raises RefusedFileError for anything but a regular file: a pipe may block, and a device may
    be endless or have effects when read."""
    if stat.S_ISREG(found.st_mode):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "no file")
    raise RefusedFileError(
        f"it is {kind}, not a file", path, remedy="Put the file itself in its place, or remove it."
    )

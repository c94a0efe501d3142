"""Files of a cache folder while they are written. Each is locked, so that leftovers of killed
writers can be told from files of running ones."""

import contextlib
import fcntl
import io
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from paredown.files.new_file import PRIVATE, make_raw_file
from paredown.files.own_file import open_own_file

_SUFFIX = ".partial"
_OWN_NAME = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(_SUFFIX)}")


@contextlib.contextmanager
def partial_file(folder: Path) -> Iterator[tuple[Path, io.FileIO]]:
    """Creates a file with a unique name that `remove_leftovers` ignores until the block ends. It
    is then removed, unless the block renamed it. Raises OSError."""
    while True:
        path = folder / f".{secrets.token_hex(8)}{_SUFFIX}"
        with make_raw_file(path, PRIVATE) as file:
            try:
                if not _is_locked(path, file):
                    continue
                yield path, file
                return
            finally:
                path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Removes the files of killed writers; a running writer holds a lock on its file."""
    for path in folder.glob(f".*{_SUFFIX}"):
        if not _OWN_NAME.fullmatch(path.name):
            continue
        with contextlib.suppress(OSError), open_own_file(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)


def _is_locked(path: Path, file: io.FileIO) -> bool:
    """Returns whether the file is still ours: another process may have removed it as a leftover
    before it was locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return path.exists()

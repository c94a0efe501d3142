"""Files of a cache folder while they are written: locked, so that those of writers that were killed
can be told from those of writers at work."""

import contextlib
import fcntl
import io
import secrets
from collections.abc import Iterator
from pathlib import Path

_SUFFIX = ".partial"


@contextlib.contextmanager
def partial_file(folder: Path) -> Iterator[tuple[Path, io.FileIO]]:
    """A new file with a name of its own, which `remove_leftovers` leaves alone until the block has
    ended. It is removed then, unless the block gave it another name. Raises OSError."""
    while True:
        path = folder / f".{secrets.token_hex(8)}{_SUFFIX}"
        with path.open("xb", buffering=0) as file:
            try:
                if not _is_locked(path, file):
                    continue
                yield path, file
                return
            finally:
                path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Removes what writers left that were killed: a living one holds a lock on its file."""
    for path in folder.glob(f".*{_SUFFIX}"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)


def _is_locked(path: Path, file: io.FileIO) -> bool:
    """Whether it is ours: another process may have taken it for a leftover before it was locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return path.exists()

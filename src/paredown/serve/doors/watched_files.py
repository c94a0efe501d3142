"""WatchedFiles: tells when files were replaced, so that what was read of them is read again."""

from collections.abc import Sequence
from pathlib import Path

_Signature = tuple[tuple[int, int, int, int] | None, ...]


class WatchedFiles:
    """Make it before the files are read. A change counts once they have been left alone between
    two looks: one after the other may be written."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._read = self._last = self._signature()

    def have_changed(self) -> bool:
        """Returns True once for each change. Links are followed, since a link may be what was
        replaced."""
        now = self._signature()
        is_still, self._last = now == self._last, now
        if now == self._read or not is_still:
            return False
        self._read = now
        return True

    def _signature(self) -> _Signature:
        return tuple(map(_signature, self._paths))


def _signature(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

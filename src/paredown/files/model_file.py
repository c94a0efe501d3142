"""Reads files of a model, which are untrusted, only within the model's own folder.

A link out of it would expose foreign files, such as a private key that is then copied beside the
weights. The Hugging Face hub's cache consists of links from `models--*/snapshots/COMMIT/` to
`models--*/blobs/`; these are followed within their repository.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from paredown.files.named_file import open_checked, read_whole
from paredown.files.refused_file import RefusedFileError, check_regular
from paredown.shell_word import shell_path

_REPOSITORY, _SNAPSHOTS, _BLOBS = "models--", "snapshots", "blobs"


def open_model_file(path: Path, folder: Path | None = None) -> BinaryIO:
    """Opens a file of the model in `folder`, by default the file's own. Raises OSError; its
    subclass RefusedFileError says that it is no regular file or a link out of the folder."""
    place, found = _place(path, folder)
    return open_checked(place, found, follows=False)


def read_model_file(path: Path, max_bytes: int, folder: Path | None = None) -> bytes:
    """Returns a file's content. Raises what `open_model_file` raises, and RefusedFileError for more
    than `max_bytes`."""
    with open_model_file(path, folder) as file:
        return read_whole(file, path, max_bytes)


def check_model_file(path: Path, folder: Path | None = None) -> bool:
    """Returns whether something has that name; a dangling link counts as nothing. Raises
    RefusedFileError where `open_model_file` would."""
    try:
        place, found = _place(path, folder)
    except FileNotFoundError:
        return False
    check_regular(found, place)
    return True


def _place(path: Path, folder: Path | None) -> tuple[Path, os.stat_result]:
    """Returns the file's resolved path and stat result."""
    try:
        found = path.lstat()
    except ValueError as error:  # a zero byte, or half a character
        raise RefusedFileError(
            f"no file can have such a name ({error})", path, remedy="Correct the name."
        ) from error
    if not stat.S_ISLNK(found.st_mode) and folder in (None, path.parent):
        return path, found
    real = Path(os.path.realpath(path, strict=True))
    root = Path(os.path.realpath(path.parent if folder is None else folder))
    if not real.is_relative_to(root) and not _is_blob(real, root):
        source, target = shell_path(real), shell_path(path)
        raise RefusedFileError(
            f"it is a link that leads out of the model's folder, to {real}",
            path,
            remedy="Name the folder in which the file itself lies, or, if you know that file and "
            f"it belongs to the model, put a copy in its place: `install -m 644 {source} {target}`",
        )
    return real, real.lstat()


def _is_blob(real: Path, root: Path) -> bool:
    """Returns whether `root` is in a snapshot of the hub's cache and `real` among its repository's
    files."""
    for folder in (root, *root.parents):
        snapshots = folder.parent
        if snapshots.name == _SNAPSHOTS and snapshots.parent.name.startswith(_REPOSITORY):
            return real.parent == snapshots.parent / _BLOBS
    return False

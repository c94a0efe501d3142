"""An output folder that appears whole or not at all."""

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paredown.errors import OutputError
from paredown.files.own_folder import make_new_folder
from paredown.models.files.whole_file import sync_folder

# Called with the folder once everything is written and checked, before the folder gets its name.
Finish = Callable[[Path], None]


@contextmanager
def output_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yields a hidden folder beside `path` to build in; at the end it is renamed to `path`.

    On any exception (Ctrl-C and SystemExit too) the hidden folder is removed and `path` stays as it
    was. Raises OutputError when `path` exists and may not be replaced, or when the disk is full.
    """
    path = path.absolute()
    check_output_folder(path, overwrite)
    created = _create_parents(path.parent)
    token = secrets.token_hex(4)
    partial = path.with_name(f".{path.name}.{token}.partial")
    is_ours = False
    try:
        mode = _hide(partial)
        is_ours = True
        yield partial
        partial.chmod(mode)
        _move_into_place(partial, path, path.with_name(f".{path.name}.{token}.old"), overwrite)
    except BaseException as error:
        if is_ours:
            shutil.rmtree(partial, ignore_errors=True)
        for folder in created:
            folder.rmdir()
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise _unwritable(path, error) from error
        raise


def check_output_folder(path: Path, overwrite: bool = False) -> None:
    """Checks before long work whether `path` can be written. Raises OutputError when it exists and
    may not be replaced, or no folder can be made there."""
    path = path.absolute()
    try:
        _refuse_existing(path, overwrite)
        # Try the longest name that will be needed, so that the system rejects it now if it is too
        # long.
        path.with_name(f".{path.name}.{8 * '0'}.partial").is_dir()
        parent = next(folder for folder in path.parents if folder.exists())
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{parent} is a file")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{parent} may not be written to")
    except OSError as error:
        raise _unwritable(path, error) from error


def _refuse_existing(path: Path, overwrite: bool) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise OutputError(
            f"{path} is not a folder, so it cannot be written as one",
            seen="a file or a link of that name",
            remedy="Choose another output folder.",
        )
    if path.exists() and not overwrite:
        raise OutputError(
            f"the output folder {path} exists already",
            seen=f"{sum(1 for _ in path.iterdir())} entries in it",
            remedy="Choose another output folder, or remove this one.",
        )


def _create_parents(folder: Path) -> list[Path]:
    """Creates the missing parents of `folder`; returns those it created, innermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    created: list[Path] = []
    try:
        for parent in reversed(missing):
            _make_folder(parent)
            created.insert(0, parent)
    except OutputError:
        for parent in created:
            parent.rmdir()
        raise
    return created


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir()
    except OSError as error:
        raise _unwritable(folder, error) from error


def _hide(folder: Path) -> int:
    """Makes a folder that others cannot look into yet; returns the mode that it gets at the end."""
    try:
        return make_new_folder(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _move_into_place(partial: Path, path: Path, old: Path, overwrite: bool) -> None:
    try:
        if overwrite and path.exists():
            path.rename(old)
            try:
                partial.rename(path)
            except BaseException:
                old.rename(path)
                raise
            shutil.rmtree(old)
        else:
            partial.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"the output folder {path} could not be written",
        seen=error.strerror or error,
        remedy="Free some space or choose another place; nothing was left behind.",
    )

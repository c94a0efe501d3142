"""Folders that are trusted because they belong to the user and nobody else can write to them."""

import os
import stat
from pathlib import Path

from paredown.files.refused_file import RefusedFileError
from paredown.shell_word import shell_path

PRIVATE = 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_own_folder(path: Path) -> None:
    """Raises RefusedFileError for a folder that others can have written to, and OSError where there
    is none."""
    _check(path.lstat(), path)


def make_own_folder(path: Path) -> bool:
    """Creates a folder for the user alone, or accepts one that passes `check_own_folder`. Returns
    whether it is new. Raises RefusedFileError and OSError."""
    try:
        path.mkdir(mode=PRIVATE)
    except FileExistsError:
        _close_to_others(path, is_new=False)
        return False
    return True


def make_new_folder(path: Path) -> int:
    """Creates a folder that only the user may enter. Returns the mode that the user's umask would
    have given it, for when it is finished. Raises OSError, including FileExistsError if the name
    exists."""
    path.mkdir()
    mode = _close_to_others(path, is_new=True)
    # With a umask that lets others write, they may have written before the folder was closed.
    if mode & _OTHERS_WRITE and any(path.iterdir()):
        raise RefusedFileError(
            "somebody else has put files in it",
            path,
            remedy="Choose a place that others cannot write to.",
        )
    return mode


def is_own(found: os.stat_result) -> bool:
    """Returns whether a file belongs to the user and nobody else can have written to it."""
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE


def _close_to_others(path: Path, *, is_new: bool) -> int:
    """Removes other users' access and returns the former mode. Raises RefusedFileError for a folder
    that is not the user's own; a new one may have been open to others for a moment."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        check_own_folder(path)  # says more of a link or a file
        raise
    try:
        found = os.fstat(folder)
        mode = stat.S_IMODE(found.st_mode)
        _check(found, path, may_be_open=is_new)
        if mode != PRIVATE:
            os.fchmod(folder, PRIVATE)
    finally:
        os.close(folder)
    return mode


def _check(found: os.stat_result, path: Path, *, may_be_open: bool = False) -> None:
    quoted = shell_path(path)
    if stat.S_ISLNK(found.st_mode):
        real = os.path.realpath(path)
        raise RefusedFileError(
            f"it is a link, to {real}", path, remedy=f"Remove the link (`rm {quoted}`)."
        )
    if not stat.S_ISDIR(found.st_mode):
        raise RefusedFileError("it is not a folder", path, remedy=f"Remove it (`rm {quoted}`).")
    user = os.geteuid()
    if found.st_uid != user:
        raise RefusedFileError(
            f"it belongs to user {found.st_uid}, not to you (user {user})",
            path,
            remedy=f"Take it over (`sudo chown -R {user} {quoted}`) if you trust what is in it.",
        )
    if found.st_mode & _OTHERS_WRITE and not may_be_open:
        raise RefusedFileError(
            f"others can write to it (mode {stat.S_IMODE(found.st_mode):04o})",
            path,
            remedy=f"Close it to them: `chmod 700 {quoted}`.",
        )

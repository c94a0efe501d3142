"""The user's cache folder. Its content is trusted like fresh results of this machine, so the folder
must be the user's own (files/own_folder.py)."""

import os
from pathlib import Path

from paredown.errors import ConfigError
from paredown.files.own_folder import check_own_folder, make_own_folder
from paredown.files.refused_file import RefusedFileError

VARIABLE = "PAREDOWN_CACHE"
OFF = "off"
_DEFAULT = "~/.cache/paredown"


def named_cache() -> Path | None:
    """Returns the folder in $PAREDOWN_CACHE, whether or not it exists; None if that is unset or
    "off"."""
    value = os.environ.get(VARIABLE, "")
    return Path(value) if value and value != OFF else None


def default_cache() -> Path:
    """Returns $XDG_CACHE_HOME/paredown, by default ~/.cache/paredown. Raises ConfigError where the
    user has no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a relative path.
    if base.startswith("/"):
        return Path(base) / "paredown"
    try:
        return Path.home() / ".cache" / "paredown"
    except RuntimeError as error:
        raise ConfigError(
            "there is no folder for what is kept from run to run",
            seen=error,
            remedy=f"Set {VARIABLE} to a folder, or to {OFF}.",
        ) from error


def check_named_cache(folder: Path) -> None:
    """Raises ConfigError for an existing folder that is not the user's own."""
    try:
        check_own_folder(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        remedy = error.remedy if isinstance(error, RefusedFileError) else "Name another folder."
        raise ConfigError(
            f"{VARIABLE} does not name a folder that you alone can write to",
            seen=f"{folder}: {error.strerror or error}",
            remedy=f"{remedy} Or use one of your own: `mkdir -p -m 700 {_DEFAULT} && export "
            f"{VARIABLE}={_DEFAULT}`. {VARIABLE}={OFF} keeps nothing.",
        ) from error


def make_cache(folder: Path, *, is_named: bool) -> bool:
    """Creates a cache folder, or accepts the user's own; returns whether it is new. A folder that
    the user named (`is_named`) keeps its mode; the default one is closed to others. Raises OSError;
    its subclass RefusedFileError says that others can have written to it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if is_named and os.path.lexists(folder):
        check_own_folder(folder)
        return False
    return make_own_folder(folder)

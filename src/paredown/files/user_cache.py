"""The user's cache folder: what is in it was computed on this machine and is used as if it had just
been. So it must be the user's own (files/own_folder.py)."""

import os
from pathlib import Path

from paredown.errors import ConfigError
from paredown.files.own_folder import check_own_folder, make_own_folder
from paredown.files.refused_file import RefusedFileError

VARIABLE = "PAREDOWN_CACHE"
OFF = "off"
_DEFAULT = "~/.cache/paredown"


def named_cache() -> Path | None:
    """What $PAREDOWN_CACHE names, there or not; None where it is not set, or "off"."""
    value = os.environ.get(VARIABLE, "")
    return Path(value) if value and value != OFF else None


def default_cache() -> Path:
    """$XDG_CACHE_HOME/paredown, by default ~/.cache/paredown. Raises ConfigError where the user has
    no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
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
    """Raises ConfigError for a folder that is there and not the user's own."""
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
    """Makes a cache folder, or takes one of the user's own; whether it is new. One that the user
    `named` keeps its mode, the default one is closed to others. Raises OSError, of which
    RefusedFileError says that somebody else can have put something in it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if is_named and os.path.lexists(folder):
        check_own_folder(folder)
        return False
    return make_own_folder(folder)

"""The user's cache folder: what is in it was computed on this machine and is used as if it had just
been. So it must be the user's own."""

import os
import shlex
from pathlib import Path

from paredown.errors import ConfigError
from paredown.files.own_folder import check_own_folder, make_own_folder
from paredown.files.refused_file import RefusedFileError

VARIABLE = "PAREDOWN_CACHE"
OFF = "off"


def cache_folder() -> Path:
    """$PAREDOWN_CACHE where it is set to a folder, else $XDG_CACHE_HOME/paredown, by default
    ~/.cache/paredown. It need not be there."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named and named != OFF else default_cache()


def check_named_cache(folder: Path) -> None:
    """Raises ConfigError for a folder that is there and not the user's own."""
    try:
        check_own_folder(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refused(folder, error) from error


def default_cache() -> Path:
    """$XDG_CACHE_HOME/paredown, by default ~/.cache/paredown."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "paredown"


def make_cache(folder: Path) -> bool:
    """Makes a cache folder, or takes one of the user's own as it is; whether it is new. Raises
    OSError, of which RefusedFileError says that others can have put something in it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder == default_cache():
        return make_own_folder(folder)
    try:
        check_own_folder(folder)
    except FileNotFoundError:
        return make_own_folder(folder)
    return False


def _refused(folder: Path, error: OSError) -> ConfigError:
    remedy = error.remedy if isinstance(error, RefusedFileError) else "Name another folder."
    own = shlex.quote(str(default_cache()))
    return ConfigError(
        f"{VARIABLE} does not name a folder that nobody else can write to",
        seen=f"{folder}: {error.strerror or error}",
        remedy=f"{remedy} Or name one of your own: `mkdir -p -m 700 {own} && export "
        f"{VARIABLE}={own}`, or set {VARIABLE} to {OFF}.",
    )

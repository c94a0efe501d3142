"""What `paredown doctor` measured of this machine, kept in the user's cache folder, so that those
who ask later have it in milliseconds. A file for each processor, instruction set and number of
threads."""

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path

from paredown.cost.step_fit import StepFit
from paredown.errors import ConfigError, OutputError
from paredown.user_cache import user_cache_folder

FOLDER = "machines"
VARIABLE = "PAREDOWN_CACHE"
_DOCTOR = "`paredown doctor --sweep` measures this machine (a few minutes)"


def machine_folder() -> Path:
    """`machines` in $PAREDOWN_CACHE where that is a folder, else in the user's cache folder.
    Raises OutputError for a user without a home."""
    own = os.environ.get(VARIABLE, "")
    if own and own != "off":
        return Path(own) / FOLDER
    folder = user_cache_folder()
    if folder is None:
        raise OutputError(
            "this user has no folder for caches",
            seen="no home, and no XDG_CACHE_HOME",
            remedy=f"Name a folder in {VARIABLE}.",
        )
    return folder / FOLDER


def machine_path(name: str, isa: str, num_threads: int) -> Path:
    key = hashlib.sha256(f"{name}\n{isa}\n{num_threads}".encode()).hexdigest()[:16]
    return machine_folder() / f"{key}.json"


def save_step_fit(fit: StepFit) -> Path:
    """Writes it whole or not at all. Raises OutputError."""
    path = machine_path(fit.roofs.name, fit.isa, fit.num_threads)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(fit.as_json(), indent=1) + "\n", "utf-8")
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise OutputError(
            f"{path} could not be written",
            seen=error.strerror or error,
            remedy=f"Free some space, or name another folder in {VARIABLE}.",
        ) from error
    return path


def find_step_fit(name: str, isa: str, num_threads: int) -> StepFit | None:
    """What was kept for such a machine; None where there is nothing, or from another version."""
    try:
        fields = json.loads(machine_path(name, isa, num_threads).read_text("utf-8"))
        return StepFit.from_json(fields)
    except (OSError, OutputError, KeyError, TypeError, ValueError):
        return None


def need_step_fit(name: str, isa: str, num_threads: int) -> StepFit:
    """Finds what `find_step_fit` finds. Raises ConfigError where there is none."""
    found = find_step_fit(name, isa, num_threads)
    if found is None:
        raise ConfigError(
            "this machine has not been measured yet",
            seen=f"{name}, {isa}, {num_threads} threads",
            remedy=f"{_DOCTOR}; or name another machine (`--machine h100`).",
        )
    return found

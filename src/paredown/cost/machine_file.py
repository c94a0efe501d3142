"""Keeps the measurements of `paredown doctor` in the user's cache folder, so that later
commands read them in milliseconds. Each processor, instruction set and number of threads has
its own file."""

import contextlib
import hashlib
import json
import logging
import secrets
from pathlib import Path

from paredown.cost.step_fit import StepFit
from paredown.errors import ConfigError, OutputError
from paredown.files.new_file import PRIVATE, make_file
from paredown.files.own_file import read_own_file
from paredown.files.own_folder import check_own_folder, make_own_folder
from paredown.files.refused_file import RefusedFileError
from paredown.files.user_cache import VARIABLE, default_cache, make_cache, named_cache
from paredown.units import MEBI

LOGGER = logging.getLogger(__name__)

FOLDER = "machines"
_MAX_BYTES = MEBI
_DOCTOR = "`paredown doctor --sweep` measures this machine (a few minutes)"


def machine_folder() -> Path:
    """Returns `machines` in $PAREDOWN_CACHE if that is a folder, else in the user's cache
    folder."""
    return (named_cache() or default_cache()) / FOLDER


def machine_path(name: str, isa: str, num_threads: int) -> Path:
    key = hashlib.sha256(f"{name}\n{isa}\n{num_threads}".encode()).hexdigest()[:16]
    return machine_folder() / f"{key}.json"


def save_step_fit(fit: StepFit) -> Path:
    """Writes the file whole or not at all. Raises OutputError."""
    path = machine_path(fit.roofs.name, fit.isa, fit.num_threads)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    is_ours = False
    try:
        make_cache(path.parent.parent, is_named=named_cache() is not None)
        make_own_folder(path.parent)
        with make_file(partial, PRIVATE) as file:
            is_ours = True
            file.write((json.dumps(fit.as_json(), indent=1) + "\n").encode())
        partial.replace(path)
    except OSError as error:
        if is_ours:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        raise OutputError(
            f"{path} could not be written",
            seen=error.strerror or error,
            remedy=error.remedy
            if isinstance(error, RefusedFileError)
            else f"Free some space, or name another folder in {VARIABLE}.",
        ) from error
    return path


def find_step_fit(name: str, isa: str, num_threads: int) -> StepFit | None:
    """Returns the step fit kept for this machine. Returns None if there is none, if another
    version wrote it, or, with a warning, if another user could have written it."""
    path = machine_path(name, isa, num_threads)
    try:
        for folder in (path.parent.parent, path.parent):
            check_own_folder(folder)
        return StepFit.from_json(json.loads(read_own_file(path, _MAX_BYTES)))
    except RefusedFileError as error:
        LOGGER.warning("%s is not used: %s. %s", error.filename, error.strerror, error.remedy)
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        pass
    return None


def need_step_fit(name: str, isa: str, num_threads: int) -> StepFit:
    """Does what `find_step_fit` does, but raises ConfigError if there is no fit."""
    found = find_step_fit(name, isa, num_threads)
    if found is None:
        raise ConfigError(
            "this machine has not been measured yet",
            seen=f"{name}, {isa}, {num_threads} threads",
            remedy=f"{_DOCTOR}; or name another machine (`--machine h100`).",
        )
    return found

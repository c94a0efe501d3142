"""The native module as it lies in this installation: found, loaded, and of this very package."""

import hashlib
import importlib
import platform
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import paredown
from paredown.errors import InstallationError
from paredown.installation import install_command, one_line

FOLDER = Path(__file__).parent
NAME = "paredown.kernels._core"
_GLIBC = re.compile(r"version `GLIBC_([\d.]+)' not found")


def check_native_module() -> None:
    """Raises InstallationError where the native module is missing, cannot be loaded, or was built
    from another version of the package."""
    try:
        core = importlib.import_module(NAME)
    except ModuleNotFoundError as error:
        raise _not_found() from error
    except ImportError as error:
        raise _not_loaded(error) from error
    built = (getattr(core, "VERSION", "unknown"), getattr(core, "INTERFACE", ""))
    if built != (paredown.__version__, interface_digest()):
        version = built[0] if built[0] != paredown.__version__ else f"other files of {built[0]}"
        raise InstallationError(
            "the native module was built for another version of the package",
            seen=f"{core.__file__} for {version}, the package is {paredown.__version__}",
            remedy=f"Install both from one place: `{install_command()}`.",
        )


def interface_digest() -> str:
    """A digest of what the package expects the native module to offer."""
    return hashlib.sha256((FOLDER / "_core.pyi").read_bytes()).hexdigest()


def _not_found() -> InstallationError:
    suffix = EXTENSION_SUFFIXES[0]
    # An editable installation has two: of the sources, and of what was built from them.
    folders = [Path(folder) for folder in sys.modules["paredown.kernels"].__path__]
    found = (path.name for folder in folders for path in folder.glob("_core.*.so"))
    others = ", ".join(sorted(found))
    place = f"Python {platform.python_version()} on {platform.machine()} wants _core{suffix}"
    what = "no native module for this Python and processor" if others else "no native module"
    return InstallationError(
        f"there is {what} in this installation",
        seen=f"{others or 'none'} in {', '.join(map(str, folders))}; {place}",
        remedy=f"Install it for this Python: `{install_command()}`.",
    )


def _not_loaded(error: ImportError) -> InstallationError:
    reason = one_line(error)
    newer = _GLIBC.search(reason)
    if newer is not None:
        name, version = platform.libc_ver()
        return InstallationError(
            "the C library of this system is too old for the native module",
            seen=f"{name} {version}; it needs glibc {newer[1]}",
            remedy=f"Build it here, with a C++20 compiler: `{install_command(from_source=True)}`.",
        )
    return InstallationError(
        "the native module cannot be loaded",
        seen=reason,
        remedy=f"Install it again: `{install_command()}`.",
    )

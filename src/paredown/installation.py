"""Says what is wrong with an installation, in one line with the command that mends it.

Python 3.9 can read this file, since it is what tells of a Python that is too old for the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from paredown.errors import InstallationError

MIN_PYTHON = (3, 11)
# Modules that come with an extra, by the package that brings them. They are named one by one: an
# extra can only be asked for where Paredown came from, an index or a checkout.
EXTRAS = {"compress": {"matplotlib": "matplotlib", "torch": "torch", "yaml": "pyyaml"}}
# Modules that Paredown always needs, by the package that brings them.
DEPENDENCIES = {
    "httpx2": "httpx2",
    "huggingface_hub": "huggingface_hub",
    "jinja2": "jinja2",
    "llguidance": "llguidance",
    "numpy": "numpy",
    "pydantic": "pydantic",
    "re2": "google-re2",
    "rich": "rich",
    "safetensors": "safetensors",
    "starlette": "starlette",
    "tokenizers": "tokenizers",
    "uvicorn": "uvicorn",
}


def check_python() -> None:
    """Raises InstallationError where this Python is too old."""
    running, needed = tuple(sys.version_info[:2]), ".".join(map(str, MIN_PYTHON))
    if running < MIN_PYTHON:
        raise InstallationError(
            f"Paredown needs Python {needed} or newer",
            seen=f"Python {running[0]}.{running[1]}",
            remedy=f"Make an environment of a newer one: `python{needed} -m venv .venv`, and "
            f"install Paredown there.",
        )


def raise_explained(error: ImportError) -> NoReturn:
    """Raises InstallationError: what could not be imported, and the command that mends it."""
    explained = explain(error)
    if explained is error:
        raise explained
    raise explained from error


def explain(error: ImportError) -> InstallationError:
    """Says what could not be imported, and the command that mends it."""
    if isinstance(error, InstallationError):
        return error
    missing = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not missing:
        return _damaged(error)
    if missing == "paredown":
        return InstallationError(
            "a part of Paredown is not in this installation",
            seen=f"no module {error.name}",
            remedy=f"Install it again: `{install_command()}`.",
        )
    for extra, packages in EXTRAS.items():
        if missing in packages:
            return InstallationError(
                f"this needs {missing}, which is not installed (the extra {extra} has it)",
                seen=f"no module {missing}",
                remedy=f"Install what the extra has: `{pip('install', *packages.values())}`.",
            )
    package = DEPENDENCIES.get(missing)
    mend = pip("install", package) if package else install_command(with_dependencies=True)
    return InstallationError(
        f"Paredown needs {missing}, which is not installed",
        seen=f"no module {error.name}",
        remedy=f"Install it: `{mend}`.",
    )


def _damaged(error: ImportError) -> InstallationError:
    package = _importer(error)
    if package == "paredown":
        mend = install_command()
    else:
        package_name = {"yaml": "pyyaml"}.get(package, package)
        mend = pip("install", "--force-reinstall", package_name)
    return InstallationError(
        f"{package} cannot be imported; its files do not fit each other or this machine",
        seen=one_line(error),
        remedy=f"Install it again: `{mend}`.",
    )


def _importer(error: ImportError) -> str:
    """The package whose file asked for what could not be imported."""
    package, traceback = "paredown", error.__traceback__
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if name not in ("importlib", "_frozen_importlib", "_frozen_importlib_external", "__main__"):
            package = name
        traceback = traceback.tb_next
    return package


def one_line(error: BaseException) -> str:
    """The first line of the first cause: some packages wrap it in a page of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().partition("\n")[0]


def pip(*words: str) -> str:
    """A command for the environment of this Python, whichever `pip` a shell would find."""
    return " ".join([sys.executable or "python3", "-m", "pip", *words])


def install_command(*, with_dependencies: bool = False, from_source: bool = False) -> str:
    """The command that puts Paredown here once more, from where it came: an index, a file or a
    checkout."""
    import paredown

    checkout = Path(__file__).resolve().parents[2]
    if _is_checkout(checkout):
        return pip("install", "--editable", str(checkout))
    words = [] if with_dependencies else ["--force-reinstall", "--no-deps"]
    if from_source:
        words += ["--no-binary", "paredown"]
    return pip("install", *words, _origin() or f"paredown=={paredown.__version__}")


def _is_checkout(folder: Path) -> bool:
    project = folder / "pyproject.toml"
    return project.is_file() and 'name = "paredown"\n' in project.read_text("utf-8")


def _origin() -> str | None:
    """The folder, file or address that pip recorded (PEP 610); None for an index."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        text = distribution("paredown").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    if text is None:
        return None
    url = str(json.loads(text)["url"])
    parts = urlsplit(url)
    if parts.scheme != "file":
        return url
    path = unquote(parts.path)
    return path if Path(path).exists() else None

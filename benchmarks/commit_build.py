"""Compiles a commit of this repository into its own folder, with its drivers beside it."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.build import INSTALLED, ROOT, Build
from paredown.errors import ConfigError, ParedownError


class BuildError(ParedownError):
    """A commit could not be compiled."""


def commit_id(ref: str, root: Path = ROOT) -> str:
    """Returns the full id of a branch, a tag or any other git expression. Raises ConfigError."""
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode != 0:
        raise ConfigError(
            "there is no such commit", seen=ref, remedy="Give what `git log` knows, as HEAD~1."
        )
    return found.stdout.strip()


def build_of(commit: str | None, folder: Path) -> Build:
    """Returns the build of a full commit id, below the absolute path `folder`, or the installed
    one. Raises BuildError."""
    if commit is None:
        return INSTALLED
    print(f"{commit[:12]} is compiled where it is new", file=sys.stderr, flush=True)
    return built_commit(commit, folder)


def built_commit(commit: str, folder: Path, root: Path = ROOT) -> Build:
    """Returns the build of a full commit id, below the absolute path `folder`. A commit is compiled
    on first use, which takes minutes. Raises BuildError."""
    place = folder / commit
    build = Build(tree=place / "tree", packages=place / "packages")
    if place.is_dir():
        return build
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        made, archive = Path(unfinished, "made"), Path(unfinished, "tree.tar")
        tree, packages = made / "tree", made / "packages"
        tree.mkdir(parents=True)
        _run(["git", "archive", "--output", str(archive), commit], root)
        _run(["tar", "-xf", str(archive), "-C", str(tree)], root)
        objects = f"--config-settings=build-dir={unfinished}/objects"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", objects]
        _run([*pip, "--target", str(packages), str(tree)], root)
        made.replace(place)
    return build


def _run(command: Sequence[str], root: Path) -> None:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(
            f"`{' '.join(command[:4])} ...` failed with status {done.returncode}",
            seen=_told_errors(done.stderr),
            remedy="Compile that commit by hand to see why.",
        )


def _told_errors(log: str) -> str:
    """Returns the lines that name an error, the last first, or the end of the log."""
    lines = [line.strip() for line in log.splitlines() if "rror: " in line]
    return "; ".join(reversed(lines)) or log.strip()[-400:]

"""A commit of this repository, compiled into a folder of its own."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.child import ROOT
from paredown.errors import ConfigError, ParedownError


class BuildError(ParedownError):
    """A commit could not be compiled."""


def commit_id(ref: str, root: Path = ROOT) -> str:
    """The full name of a branch, a tag or any other expression of git's. Raises ConfigError."""
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


def built_commit(commit: str, folder: Path, root: Path = ROOT) -> Path:
    """A folder below `folder` with the package of a full commit id, compiled when it is asked for
    the first time (minutes). Raises BuildError."""
    packages = folder / commit
    if packages.is_dir():
        return packages
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        source, archive = Path(unfinished, "source"), Path(unfinished, "source.tar")
        source.mkdir()
        _run(["git", "archive", "--output", str(archive), commit], root)
        _run(["tar", "-xf", str(archive), "-C", str(source)], root)
        made = Path(unfinished, "packages")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        _run([*pip, "--target", str(made), str(source)], root)
        made.replace(packages)
    return packages


def _run(command: Sequence[str], root: Path) -> None:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(
            f"`{' '.join(command[:4])} ...` failed with status {done.returncode}",
            seen=done.stderr.strip()[-2000:],
            remedy="Compile that commit by hand to see why.",
        )

"""A build of the project: a source tree with its own drivers, and the package that they import."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Build:
    """`tree` holds the drivers (`benchmarks/`). `packages` is a folder with the package that they
    drive; None stands for the package that is installed here."""

    tree: Path
    packages: Path | None = None

    def command(self, module: str, *words: str) -> list[str]:
        """The command that runs a module of the tree; it must run in the folder `tree`."""
        # Without `site`, which would put what is installed as editable before any path.
        flags = [] if self.packages is None else ["-S"]
        return [sys.executable, *flags, "-m", module, *words]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of that command: this process's, with `extra` on top."""
        environment = {**os.environ, **(extra or {})}
        if self.packages is not None:
            installed = [folder for folder in sys.path if Path(folder).name == "site-packages"]
            environment["PYTHONPATH"] = os.pathsep.join([str(self.packages), *installed])
        return environment


INSTALLED = Build(tree=ROOT)

"""A copy of the installed package that a test may damage, and commands that run from it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import paredown
from paredown.kernels import _core

SOURCE = Path(paredown.__file__).parent
CORE = Path(_core.__file__)
TIMEOUT_S = 120


class Installation:
    """The package in a folder of its own; files are links until a test puts others there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "paredown"
        shutil.copytree(
            SOURCE,
            self.package,
            copy_function=os.symlink,
            ignore=shutil.ignore_patterns("*.so", "__pycache__", "assets"),
        )
        # By where this file lies a checkout is known.
        own = self.package / "installation.py"
        own.unlink()
        shutil.copy(SOURCE / own.name, own)
        (self.package / "assets").symlink_to(SOURCE / "assets")
        self.core = self.package / "kernels" / CORE.name
        self.core.symlink_to(CORE)

    def run_python(self, code: str) -> subprocess.CompletedProcess[str]:
        """Runs the code with this package before any other, and without site's editable finders."""
        paths = [str(self.folder), *(path for path in sys.path if path)]
        head = f"import sys; sys.meta_path[:] = sys.meta_path[-3:]; sys.path[:0] = {paths!r}\n"
        command = [sys.executable, "-c", head + code]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
        )

    def run(self, *words: str, before: str = "") -> subprocess.CompletedProcess[str]:
        """Runs the command line, after the code of `before`."""
        code = f"{before}\nfrom paredown.cli.main import main\nsys.exit(main({list(words)!r}))"
        return self.run_python(code)


GENERATE = ("generate", "Once", "--max-tokens", "2", "--threads", "1")


def assert_one_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """The command ended with 2 and one line on stderr that has these parts."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("paredown: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr

"""Runs a suite's tests in a process of their own, whose plugin writes their outcomes."""

import os
import subprocess
import sys
from pathlib import Path

from tools.conformance.suite import Suite
from tools.conformance.work import Work

ROOT = Path(__file__).parent.parent.parent
PLUGIN = "tools.conformance.record_outcomes"
# A suite that hangs is ended; its tests take minutes.
MAX_RUN_S = 3600
# Exit codes of pytest: all passed, some failed, none collected.
_RAN = (0, 1, 5)


def run_suite(suite: Suite, suites: Path, work: Work, selected: str = "") -> None:
    """Runs the tests whose names hold `selected`, and appends their outcomes to those of `work`.
    Raises RuntimeError where pytest itself fails."""
    folder = suites / suite.folder
    working_folder = (folder / suite.working_folder).resolve()
    for number, run in enumerate(suite.runs):
        roots = [os.path.relpath(folder / root, working_folder) for root in run.roots]
        command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-q"]
        command += ["-p", "no:xdist", "--tb=no", *suite.arguments, *roots]
        environment = {
            **os.environ,
            **work.environment(),
            "PAREDOWN_CONFORMANCE_RUN": str(number),
            "PAREDOWN_CONFORMANCE_SELECTED": selected,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(
                str(path) for path in (*((folder / path).resolve() for path in suite.paths), ROOT)
            ),
        }
        log = work.folder / f"{suite.name}.log"
        with log.open("a", encoding="utf-8") as file:
            ended = subprocess.run(
                command,
                cwd=working_folder,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=MAX_RUN_S,
                check=False,
            )
        if ended.returncode not in _RAN or not work.outcomes.exists():
            words = log.read_text("utf-8")[-2000:]
            raise RuntimeError(f"{suite.name}: pytest ended with {ended.returncode}: {words}")

"""The most anonymous memory that a command ever holds, seen from outside."""

import subprocess
import time
from pathlib import Path

from benchmarks.build import ROOT
from paredown.units import KIBI

_PERIOD_S = 0.005


def anonymous_bytes(status: str) -> int:
    """RssAnon in the text of /proc/PID/status; 0 where the process has none any more."""
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * KIBI
    return 0


def peak_anonymous_bytes(command: list[str]) -> int:
    """Runs a command in the project's folder to its end. Raises CalledProcessError."""
    peak = 0
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(status.read_text()))
            time.sleep(_PERIOD_S)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return peak

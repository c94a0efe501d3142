"""The machine that something was measured on, as a page tells it."""

import datetime
import subprocess

from benchmarks.build import ROOT
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import measure_machine


def describe_machine(num_threads: int) -> dict[str, object]:
    machine = measure_machine(num_threads)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    return {
        "name": machine.name,
        "num_threads": num_threads,
        "isa": chosen_isa(),
        "commit": commit,
        "date": datetime.date.today().isoformat(),
    }

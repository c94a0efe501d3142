"""The time and the peak memory of pruning methods beside GPTQ, on the same model and calibration.

Every run is a process of its own. Runs alternate, so that other work on the machine disturbs all of
them alike. `seconds` are those of `compress`; `processor` counts the seconds of all threads, and
`memory` is the most anonymous memory that the process holds.

    python -m benchmarks.pruning.cost MODEL RECIPE SAMPLES OUTPUT     one run, its seconds to OUTPUT
"""

import json
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.real.peak_memory import peak_anonymous_bytes
from paredown.compress.compress import compress
from paredown.errors import ConfigError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.jobs.calibration_windows import calibration_windows
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress
from paredown.units import MEGA

# The first is what the others are compared with.
RECIPES = ("gptq-int4-g64", "sparsegpt-50", "sparsegpt-2of4", "rose-50", "wanda-50")
_FIGURES = ("seconds", "processor_s", "peak_bytes")


def measure_cost(
    model: Path, recipes: list[str], num_samples: int, num_rounds: int, on_progress: OnProgress
) -> dict[str, Any]:
    """Returns the medians of every recipe's figures, and each of them over the first recipe's."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in recipes}
    for number in range(num_rounds):
        for place, name in enumerate(recipes):
            on_progress(name, (number + place / len(recipes)) / num_rounds)
            runs[name].append(_run(model, name, num_samples))
    return compared(runs)


def compared(runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Returns by recipe the medians of its runs, and what they are of the first recipe's."""
    medians = {
        name: {figure: statistics.median(one[figure] for one in own) for figure in _FIGURES}
        for name, own in runs.items()
    }
    first = next(iter(medians.values()))
    return {
        name: own | {"of_first": {figure: own[figure] / first[figure] for figure in _FIGURES}}
        for name, own in medians.items()
    }


def show_cost(found: dict[str, Any]) -> None:
    first = next(iter(found))
    table = Table("recipe", "seconds", "processor", "memory, MB", f"time of {first}", "memory")
    for name, own in found.items():
        ratios = own["of_first"]
        table.add_row(
            name,
            f"{own['seconds']:.1f}",
            f"{own['processor_s']:.1f}",
            f"{own['peak_bytes'] / MEGA:.0f}",
            f"{ratios['seconds']:.2f} ({ratios['processor_s']:.2f})",
            f"{ratios['peak_bytes']:.2f}",
        )
    Console().print(table)


def _run(model: Path, recipe: str, num_samples: int) -> dict[str, float]:
    with TemporaryDirectory(prefix="paredown-") as folder:
        output = Path(folder) / "seconds.json"
        command = [sys.executable, "-m", "benchmarks.pruning.cost"]
        peak = peak_anonymous_bytes([*command, str(model), recipe, str(num_samples), str(output)])
        seconds: dict[str, float] = json.loads(output.read_text())
    return seconds | {"peak_bytes": peak}


def _time_one(model: Path, recipe: str, num_samples: int, output: Path) -> None:
    source = Checkpoint.open(model)
    try:
        config = CalibrationConfig(num_samples=num_samples)
        windows = calibration_windows(source, config, None)
        began, used = time.perf_counter(), time.process_time()
        compress(source, output.with_name("made"), recipe, calibration=windows)
    except ConfigError as error:
        raise SystemExit(str(error)) from error
    figures = {
        "seconds": time.perf_counter() - began,
        "processor_s": time.process_time() - used,
    }
    output.write_text(json.dumps(figures))


if __name__ == "__main__":
    _time_one(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))

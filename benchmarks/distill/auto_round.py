"""Codes that AutoRound tunes on the windows that GPTQ is calibrated on. Their names are those of a
recipe: auto-round-int3-g64-200 is int3-g64 after 200 iterations for each layer."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.jobs.calibration_windows import calibration_windows
from paredown.jobs.compress import as_recipe
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.spec.weight import DTYPES

PREFIX = "auto-round-"
CHILD = Path(__file__).parent / "auto_round_child.py"


def tune_with_auto_round(
    python: Path, model: str | None, name: str, *, num_windows: int, out: Path
) -> dict[str, Any]:
    """Writes AutoRound's folder to `out` and returns its seconds. `python` is an interpreter that
    has auto-round 0.16.1; the windows are those of our own calibration."""
    form, num_iterations = name.removeprefix(PREFIX).rsplit("-", 1)
    (step,) = as_recipe(form).quantize_steps
    spec = step.spec
    checkpoint = Checkpoint.open(resolve_model(model))
    calibration = CalibrationConfig(num_samples=num_windows)
    windows = out.with_name(f"{out.name}-windows.npy")
    windows.parent.mkdir(parents=True, exist_ok=True)
    np.save(windows, calibration_windows(checkpoint, calibration, None).windows_NT)
    asked = {
        "model": str(checkpoint.path),
        "windows": str(windows),
        "iterations": int(num_iterations),
        "bits": DTYPES[spec.dtype].bits,
        "group_size": spec.group_size,
        "symmetric": spec.symmetric,
        "out": str(out),
    }
    # Without -P this module would hide the package of its name.
    command = [str(python), "-P", str(CHILD), json.dumps(asked)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: dict[str, Any] = json.loads(told.splitlines()[-1])
    return figures

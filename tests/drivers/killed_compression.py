"""A compression that kills its own process; it imports nothing that only tests need."""

import os
import signal
from pathlib import Path

import torch

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.recipe import Recipe
from paredown.models.checkpoint import Checkpoint


def compress_until(
    source: Path, output: Path, recipe: Recipe, calibration: Calibration, share: float
) -> None:
    """Compresses the folder `source` and kills the process at that share of the work."""

    def kill(what: str, now: float) -> None:
        if now >= share:
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    compress(Checkpoint.open(source), output, recipe, calibration=calibration, on_progress=kill)

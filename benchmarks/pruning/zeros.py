"""Perplexity of models pruned to zeros: each method at half of the weights, 4 of 8 and 2 of 4."""

import math
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.recipe_names import find_recipe
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.texts.text import EvalText
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

PATTERNS = ("50", "4of8", "2of4")
METHODS = ("magnitude", "wanda", "sparsegpt", "rose")
REFINED = ("wanda-50-swaps", "wanda-50-swaps-refit", "rose-50-refit")


def measure_zeros(
    source: Checkpoint,
    text: EvalText,
    calibration: Calibration,
    recipes: list[str],
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Returns the quality of each recipe's model beside the original, and the seconds it took."""
    reference = load_executor(source, RunOptions(num_pages=num_pages_for(text)))
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
        for number, name in enumerate(recipes):
            began = time.perf_counter()
            result = compress(
                source, Path(folder) / name, find_recipe(name), calibration=calibration
            )
            seconds = time.perf_counter() - began
            measured[name] = quality_of(result.path, text, reference) | {"seconds": seconds}
            on_progress(f"{name}: perplexity {measured[name]['perplexity']:.3f}", number / 100)
    own, _ = measure_quality([reference], text)
    measured["original"] = asdict(own[0])
    return measured


def quality_of(folder: Path, text: EvalText, reference: LoadedExecutor) -> dict[str, Any]:
    executor = load_executor(Checkpoint.open(folder), RunOptions(num_pages=num_pages_for(text)))
    qualities, _ = measure_quality([executor], text, reference)
    return asdict(qualities[0])


def gap_closed(measured: dict[str, Any], name: str, baseline: str) -> float:
    """Returns the share of the baseline's gap of log-perplexity that a recipe closes."""
    worse, ours, original = (
        math.log(measured[one]["perplexity"]) for one in (baseline, name, "original")
    )
    return (worse - ours) / (worse - original)

"""The classifier with a quarter less, by the recipes of `paredown compress`: as it is cut, and
after it learned on the training file's sentences what the whole classifier says of them.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.glue.students import scores
from benchmarks.glue.train import training_examples
from benchmarks.kept_models import KeptModels
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.jobs.compress import compress_and_verify
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

CUTS = ("prune-ffn-25", "prune-heads-25", "prune-ffn-25-prune-heads-25")
# Tokens of texts, without padding: about the phrases that trained the classifier.
RECOVERY = "recover-250000"


def measure_pruned(
    classifier: Path, name: str, training_file: Path, models: KeptModels, on_progress: OnProgress
) -> dict[str, dict[str, Any]]:
    """Returns the scores of the classifier, of each cut and of each recovered cut, kept in
    `models`."""
    found: dict[str, dict[str, Any]] = {"whole": {"scores": scores(classifier, name)}}
    for recipe in (one for cut in CUTS for one in (cut, f"{cut}-{RECOVERY}")):

        def make(output: Path, recipe: str = recipe) -> dict[str, Any]:
            return prune(classifier, recipe, name, training_file, output, on_progress)

        found[recipe] = models.figures(f"{name}-{recipe}", make)
    return found


def prune(
    classifier: Path,
    recipe: str,
    name: str,
    training_file: Path,
    output: Path,
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Writes the pruned classifier `output`; returns its scores, and what is left in its layers."""
    started_cpu = time.process_time()
    with TemporaryDirectory(prefix="paredown-") as folder:
        text = Path(folder) / "sentences.txt"
        text.write_text("\n".join(_lines(training_examples(name, training_file).texts)))
        compress_and_verify(
            classifier,
            output,
            recipe,
            calibration=CalibrationConfig(text=text),
            verify=None,
            overwrite=True,
            on_progress=on_progress,
        )
    processor_s = time.process_time() - started_cpu
    weights = [Checkpoint.open(path).spec.num_linear_parameters() for path in (output, classifier)]
    return {
        "scores": scores(output, name),
        "share": weights[0] / weights[1],
        "processor_s": processor_s,
    }


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns each row's first sentence on a line."""
    return [" ".join(row[0].split()) for row in rows]

"""The rows of text that a recovery trains on."""

from dataclasses import replace

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.steps import RecoverStep
from paredown.distill.rows import Rows
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.jobs.calibration_windows import calibration_windows
from paredown.models.checkpoint import Checkpoint

# The tokens that are prepared for a budget of minutes; a longer run reads them again.
_TOKENS_PER_MINUTE = 60_000
# Windows begin elsewhere than those of the calibration.
_SEED = 1


def training_rows(
    original: Checkpoint,
    config: Calibration | CalibrationConfig,
    step: RecoverStep,
    num_threads: int | None,
) -> Rows:
    """Cuts rows from the calibration's text, or has the original sample them; windows that are
    already cut are all there is. Raises what `calibration_windows` raises."""
    if isinstance(config, Calibration):
        return Rows.from_windows(config.windows_NT)
    num_tokens = step.num_tokens or round((step.minutes or 0) * _TOKENS_PER_MINUTE)
    length = min(config.num_tokens, original.spec.max_positions)
    more = replace(
        config, num_samples=max(1, -(-num_tokens // (length - 1))), seed=config.seed + _SEED
    )
    return Rows.from_windows(calibration_windows(original, more, num_threads).windows_NT)

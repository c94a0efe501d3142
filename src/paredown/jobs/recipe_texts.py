"""The texts that a recipe needs, and where they come from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.recipe import Recipe
from paredown.compress.steps import DEFAULT_TRAIN_TOKENS, RecoverStep, TrainStep
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.texts.training_text import TrainingTextConfig
from paredown.jobs.calibration_windows import calibration_windows
from paredown.jobs.encoder_training_texts import encoder_texts
from paredown.jobs.float_source import FloatSource
from paredown.jobs.training_rows import TrainingRows, own_rows, training_rows

# The tokens that are prepared for a budget of minutes; a longer run reads them again.
TOKENS_PER_MINUTE = 60_000


@dataclass(frozen=True, kw_only=True)
class RecipeTexts:
    """`calibration` windows, and `training` rows for a step that trains; None where the recipe
    needs none. `num_threads` train; None is all cores."""

    calibration: Calibration | None = None
    training: Callable[[RecoverStep | TrainStep], TrainingRows] | None = None
    num_threads: int | None = None


def recipe_texts(
    source: FloatSource,
    recipes: Sequence[Recipe] | None,
    config: Calibration | CalibrationConfig,
    num_threads: int | None,
) -> RecipeTexts:
    """Cuts the windows that the recipes need, or has the original sample them; None stands for
    recipes that may need any. Raises ConfigError for a text that is too short and CheckpointError
    for one that cannot be read."""
    windows = None
    if recipes is None or any(recipe.needs_calibration for recipe in recipes):
        windows = calibration_windows(source.original, config, num_threads)

    def training(step: RecoverStep | TrainStep) -> TrainingRows:
        tokens = step.num_tokens or round((step.minutes or 0) * TOKENS_PER_MINUTE)
        tokens = tokens or DEFAULT_TRAIN_TOKENS
        if isinstance(step, TrainStep) and step.method == "llm_qat":
            return own_rows(source.original, tokens, num_threads)
        own = None if isinstance(config, Calibration) else config.text
        if not source.original.spec.generates:
            paths = () if own is None else (own,)
            data = TrainingDataConfig(paths=paths, held_out=0.0)
            found = encoder_texts(source.original, data, tokens)
            return TrainingRows(rows=found.rows, source=found.source)
        text = TrainingTextConfig(text=own, num_tokens=tokens)
        return training_rows(source.original, text, num_threads)

    return RecipeTexts(calibration=windows, training=training, num_threads=num_threads)

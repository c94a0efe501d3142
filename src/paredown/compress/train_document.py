"""A step that trains codes, in a recipe's document (recipe_file.py):

- method: qad            # or qat, llm_qat, scales
  tokens: 300000         # or minutes: 10
  rule: learned          # how scales are found: learned, fixed, minmax
  learning_rate: 0.0001
"""

from collections.abc import Mapping
from typing import get_args

from paredown.compress.recipe_values import checked_value, refuse_unknown
from paredown.compress.steps import StepSizeRule, TrainMethod, TrainStep

TRAININGS: tuple[TrainMethod, ...] = get_args(TrainMethod)
_KEYS = {"tokens": "num_tokens", "minutes": "minutes", "rule": "rule"}
_KEYS |= {"learning_rate": "learning_rate"}


def train_step(method: TrainMethod, parts: Mapping[str, object], where: str) -> TrainStep:
    """Builds the step from its other keys. Raises ConfigError."""
    refuse_unknown(parts, tuple(_KEYS), where)
    return TrainStep(
        method=method,
        num_tokens=checked_value(parts.get("tokens"), int | None, f"{where}, tokens"),
        minutes=checked_value(parts.get("minutes"), int | float | None, f"{where}, minutes"),
        rule=checked_value(parts.get("rule"), StepSizeRule | None, f"{where}, rule"),
        learning_rate=checked_value(
            parts.get("learning_rate"), int | float | None, f"{where}, learning_rate"
        ),
    )


def train_document(step: TrainStep) -> dict[str, object]:
    """Returns the document that `train_step` reads as the same step."""
    values = {key: getattr(step, field) for key, field in _KEYS.items()}
    return {"method": step.method, **{key: one for key, one in values.items() if one is not None}}

"""WalkPlan: what a walk through a model does to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.checked_recipe import CheckedRecipe
from paredown.compress.prune.method import Gradients


@dataclass(frozen=True, kw_only=True)
class WalkPlan:
    """The task of a walk. `gradients` has those of the modules whose pruners ask for them."""

    checked: CheckedRecipe
    calibration: Calibration
    gradients: Mapping[str, Gradients] = field(default_factory=dict)

"""WalkPlan: what a walk through a model does to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.checked_recipe import CheckedRecipe
from paredown.compress.prune.method import Gradients


@dataclass(frozen=True, kw_only=True)
class WalkPlan:
    """The task of a walk. `gradients` has those of the modules whose pruners ask for them. `stack`
    names the stack of an encoder-decoder that the plan is about ("encoder")."""

    checked: CheckedRecipe
    calibration: Calibration
    gradients: Mapping[str, Gradients] = field(default_factory=dict)
    stack: str = ""

    def place(self, layer: int) -> str:
        """Names a layer for people: "layer 3", "encoder layer 3"."""
        return f"{self.stack} layer {layer}".lstrip()

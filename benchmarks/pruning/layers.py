"""The error of every layer by every method, on the float model's inputs: the same H for all."""

import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.prune.layer_loss import layer_loss
from paredown.compress.prune.method import Pruned, Pruner, Seen
from paredown.compress.prune.pattern import Pattern, find_pattern
from paredown.compress.prune_names import split_removals
from paredown.compress.recipe import Recipe
from paredown.compress.steps import PruneStep
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

METHODS = ("magnitude", "wanda", "wanda+swaps", "wanda+refit", "sparsegpt", "rose", "rose+refit")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A pruner that tries every method on a weight, keeps their losses, and changes nothing: the
    next layer sees what the float model shows it."""

    needs_hessian: ClassVar[bool] = True
    needs_gradients: ClassVar[bool] = False

    losses: list[dict[str, float]] = field(default_factory=list)
    seconds: list[dict[str, float]] = field(default_factory=list)

    def check(self, pattern: Pattern) -> None:
        """Accepts what its methods accept."""

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        losses, seconds = {}, {}
        for name in METHODS:
            began = time.perf_counter()
            pruned = run_method(name, weight_OI, pattern, seen)
            seconds[name] = time.perf_counter() - began
            assert seen.moments is not None
            change_OI = pruned.values_OI.double() - weight_OI.double()
            losses[name] = layer_loss(change_OI, seen.moments.hessian_II)
        self.losses.append(losses)
        self.seconds.append(seconds)
        return Pruned(values_OI=weight_OI, mask_OI=torch.ones_like(weight_OI, dtype=torch.bool))


def run_method(name: str, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
    """Prunes by a method and its refinements, "wanda+swaps"."""
    method, *refinements = name.split("+")
    steps, _ = split_removals("-".join((method, pattern.name, *refinements)))
    (step,) = steps
    assert isinstance(step, PruneStep)
    pruned = step.pruner.prune(weight_OI, pattern, seen)
    for refinement in step.refinements:
        assert seen.moments is not None
        pruned = refinement.refine(weight_OI, pruned, pattern, seen.moments)
    return pruned


def measure_layers(
    source: Checkpoint, calibration: Calibration, pattern_name: str, on_progress: OnProgress
) -> dict[str, Any]:
    """Returns the sums of the losses and of the seconds by method, and the comparisons."""
    pattern = find_pattern(pattern_name)
    assert pattern is not None
    comparison: Pruner = Comparison()
    recipe = Recipe(name="compared", steps=(PruneStep(pruner=comparison, pattern=pattern),))
    with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
        compress(
            source, Path(folder) / "same", recipe, calibration=calibration, on_progress=on_progress
        )
    assert isinstance(comparison, Comparison)
    losses = comparison.losses
    return {
        "pattern": pattern_name,
        "num_layers": len(losses),
        "sum": {name: sum(one[name] for one in losses) for name in METHODS},
        "seconds": {name: sum(one[name] for one in comparison.seconds) for name in METHODS},
        "swaps_lower": 1
        - sum(one["wanda+swaps"] for one in losses) / sum(one["wanda"] for one in losses),
        "rose_below": statistics.mean(one["rose"] < one["sparsegpt"] for one in losses),
        "refit_raised": sum(
            one[f"{name}+refit"] > one[name] for one in losses for name in ("wanda", "rose")
        ),
    }

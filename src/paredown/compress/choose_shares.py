"""Chooses how much is removed from each linear module where a recipe has a budget.

    global     one threshold on |w| for all modules of the step
    max_loss   one share for all modules, as large as the sum of their predicted losses allows

Predicted losses are those of OBS (prune/obs_losses.py), on the inputs that the unpruned model shows
each module. What is measured is resolved before: the budget "sensitivity"
(jobs/measured_shares.py) and the limits `max_kl` and `min_cosine` (jobs/measured_divergence.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.walk import walk
from paredown.compress.calibrate.walk_plan import WalkPlan
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.checked_recipe import CheckedRecipe
from paredown.compress.prune.budget import LossCurve, common_share
from paredown.compress.prune.global_threshold import global_shares
from paredown.compress.prune.method import Pruned, Pruner, Seen
from paredown.compress.prune.obs_losses import loss_curve, obs_losses
from paredown.compress.prune.pattern import Pattern, Share
from paredown.compress.prunings import Pruning
from paredown.compress.recipe import Recipe
from paredown.compress.steps import PruneStep
from paredown.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class CurveRecorder:
    """Implements Pruner: keeps the curve of a weight's predicted loss, and removes nothing."""

    needs_hessian: ClassVar[bool] = True
    needs_gradients: ClassVar[bool] = False

    name: str
    curves: dict[str, LossCurve] = field(repr=False)

    def check(self, pattern: Pattern) -> None:
        """Accepts every pattern."""

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        assert seen.moments is not None
        self.curves[self.name] = loss_curve(obs_losses(weight_OI, seen.moments))
        mask_OI = torch.ones_like(weight_OI, dtype=torch.bool)
        return Pruned(values_OI=weight_OI, mask_OI=mask_OI)


def needs_curves(checked: CheckedRecipe) -> bool:
    """Whether a budget of the recipe needs predicted losses."""
    return any(one.step.max_loss is not None for one in checked.prunings.values())


def measure_curves(
    checked: CheckedRecipe,
    calibration: Calibration,
    workspace: Workspace,
    on_progress: OnProgress,
) -> dict[str, LossCurve]:
    """Returns the curves of the modules whose budgets need them, from a walk that changes nothing.
    The workspace must be empty."""
    curves: dict[str, LossCurve] = {}
    prunings = {
        name: replace(one, step=_recording(name, curves))
        for name, one in checked.prunings.items()
        if one.step.max_loss is not None
    }
    plain = Recipe(name=checked.recipe.name, floats=checked.recipe.floats)
    plan = WalkPlan(
        checked=CheckedRecipe(source=checked.source, recipe=plain, schemes={}, prunings=prunings),
        calibration=calibration,
    )
    walk(plan, workspace, lambda what, share: on_progress(f"measuring losses: {what}", share))
    return curves


def with_chosen_shares(checked: CheckedRecipe, curves: Mapping[str, LossCurve]) -> CheckedRecipe:
    """Returns the recipe with the share of each module. Modules that lose nothing are left out.
    Raises ConfigError for a budget that cannot be kept."""
    chosen: dict[str, Share] = {}
    for step in checked.recipe.prune_steps:
        names = [name for name, one in checked.prunings.items() if one.step == step]
        chosen |= _shares(step, names, checked, curves)
    prunings = {
        name: one if name not in chosen else Pruning(step=one.step, pattern=chosen[name])
        for name, one in checked.prunings.items()
        if name not in chosen or chosen[name].share > 0
    }
    return replace(checked, prunings=prunings)


def _shares(
    step: PruneStep, names: list[str], checked: CheckedRecipe, curves: Mapping[str, LossCurve]
) -> dict[str, Share]:
    assert step.budget != "sensitivity", "jobs/measured_shares.py resolves it"
    assert step.max_kl is None, "jobs/measured_divergence.py resolves it"
    assert step.min_cosine is None, "jobs/measured_divergence.py resolves it"
    if step.budget == "global":
        return global_shares(checked.source, names, step.pattern.share)
    if step.max_loss is None:
        return {}
    known = [curves[name] for name in names]
    return dict.fromkeys(names, common_share(known, step.max_loss, step.pattern.share))


def _recording(name: str, curves: dict[str, LossCurve]) -> PruneStep:
    pruner: Pruner = CurveRecorder(name=name, curves=curves)
    return PruneStep(pruner=pruner, pattern=Share(share=0.0))

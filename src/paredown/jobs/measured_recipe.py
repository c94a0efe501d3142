"""A checked recipe with the shares that its budgets measure in place of the budgets."""

from dataclasses import dataclass

from paredown.compress.checked_recipe import CheckedRecipe, check_recipe
from paredown.jobs.measured_divergence import with_measured_divergence
from paredown.jobs.measured_shares import with_measured_shares
from paredown.jobs.recipe_texts import RecipeTexts
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class MeasuredRecipe:
    """`checked` has a share for every step; `notes` say what was measured."""

    checked: CheckedRecipe
    notes: tuple[str, ...]


def measured_recipe(
    checked: CheckedRecipe, original: Checkpoint, texts: RecipeTexts, on_progress: OnProgress
) -> MeasuredRecipe:
    """Measures the budgets of a recipe for a source that was made of `original`. Raises
    CheckpointError for predictions that are not numbers."""
    source = checked.source
    recipe = with_measured_shares(source, checked.recipe, texts.calibration, on_progress)
    recipe, notes = with_measured_divergence(source, original, recipe, texts, on_progress)
    if recipe != checked.recipe:
        checked = check_recipe(source, recipe)
    return MeasuredRecipe(checked=checked, notes=notes)

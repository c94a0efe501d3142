"""A recipe and a checkpoint that can have it, checked before any work starts."""

from collections.abc import Mapping
from dataclasses import dataclass

from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.schemes import Scheme, resolve_schemes
from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.config import check_native


@dataclass(frozen=True, kw_only=True)
class CheckedRecipe:
    """`schemes` says what each linear layer of `source` becomes, by module."""

    source: Checkpoint
    recipe: Recipe
    schemes: Mapping[str, Scheme]


def check_recipe(source: Checkpoint, recipe: Recipe | str) -> CheckedRecipe:
    """Finds out what each linear layer becomes, by the recipe or that of the name. Raises
    ConfigError for an unknown recipe, UnsupportedError for one that this model cannot have and for
    a source that is compressed already."""
    if isinstance(recipe, str):
        recipe = find_recipe(recipe)
    check_native(source.names.family)
    if source.is_quantized:
        raise UnsupportedError(
            "the checkpoint is compressed already",
            seen=str(source.path),
            remedy="Compress the original, so that errors do not add up.",
        )
    return CheckedRecipe(source=source, recipe=recipe, schemes=resolve_schemes(recipe, source))

"""A recipe checked against a checkpoint, before any work starts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.require_floats import require_floats
from paredown.compress.schemes import Scheme, resolve_schemes, resolved_name
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.folder_files import check_files


@dataclass(frozen=True, kw_only=True)
class CheckedRecipe:
    """`schemes` gives the scheme of each linear layer of `source`, by module. The recipe's name
    has the group sizes that its layers have."""

    source: Checkpoint
    recipe: Recipe
    schemes: Mapping[str, Scheme]


def check_recipe(source: Checkpoint, recipe: Recipe | str) -> CheckedRecipe:
    """Resolves a recipe, or its name, for each linear layer. Raises ConfigError for an unknown
    recipe and CheckpointError for a source with files that are not copied. Raises UnsupportedError
    for a recipe that this model cannot have and for a source that is already compressed."""
    if isinstance(recipe, str):
        recipe = find_recipe(recipe)
    require_floats(source)
    check_files(source.path)
    schemes = resolve_schemes(recipe, source)
    named = replace(recipe, name=resolved_name(recipe, schemes))
    return CheckedRecipe(source=source, recipe=named, schemes=schemes)

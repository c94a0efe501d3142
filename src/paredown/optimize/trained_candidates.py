"""Candidates whose codes are trained after they were found."""

from paredown.compress.changed_recipe import with_training_budget
from paredown.compress.group_sizes import ANY_GROUPS, groups_name
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe

# At more bits training gains next to nothing (docs/methods/quantized_training.md).
_LOW_BITS = ("int4", "int3")


def trained_recipes(tables: str, minutes: float) -> list[Recipe]:
    """Returns the recipes of QAD at few bits, each with as many minutes; `tables` ends every name
    with the formats of output layer and embedding."""
    groups = groups_name(ANY_GROUPS)
    return [
        with_training_budget(find_recipe(f"qad-{bits}{groups}{tables}"), minutes=minutes)
        for bits in _LOW_BITS
    ]

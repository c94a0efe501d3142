"""Group sizes that adapt to the model: each layer uses the largest of several that divides its
columns.

A format's name lists the sizes from large to small: int4-g128-g64-g32.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from paredown.errors import ConfigError
from paredown.formats.table import GROUP_SIZES, RECIPE_FORMATS
from paredown.spec.weight import WeightSpec

# All sizes, for a search that must fit any model.
ANY_GROUPS = tuple(sorted(GROUP_SIZES, reverse=True))
# Precedes the inputs' rounding in a format's name.
INPUTS_MARK = "-on-"
_NAME = re.compile(r"(?P<numbers>[^-]+)(?P<sizes>(?:-g\d+){2,})(?P<ending>(?:-.+)?)")


def groups_name(sizes: Sequence[int]) -> str:
    """Returns '-g128-g64-g32', as in a format's name."""
    return "".join(f"-g{size}" for size in sizes)


def split_groups(name: str) -> tuple[str, tuple[int, ...]]:
    """Returns a format's name with only its first group size, and all sizes; no sizes unless it
    has several. Raises ConfigError for sizes that do not fall."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name, ()
    sizes = tuple(int(size) for size in match["sizes"].split("-g")[1:])
    if list(sizes) != sorted(set(sizes), reverse=True) or not set(sizes) <= set(GROUP_SIZES):
        raise ConfigError(
            "group sizes to choose from stand from large to small",
            seen=name,
            remedy=f"Write {match['numbers']}{groups_name(ANY_GROUPS)}{match['ending']}.",
        )
    return f"{match['numbers']}-g{sizes[0]}{match['ending']}", sizes


def fit_groups(spec: WeightSpec, sizes: Collection[int], num_columns: int) -> WeightSpec:
    """Returns the spec with the largest of these groups that divides the columns, or with the
    smallest if none does. Without sizes the spec is unchanged."""
    if not sizes:
        return spec
    fitting = [size for size in sizes if num_columns % size == 0]
    return replace(spec, group_size=max(fitting, default=min(sizes)))


def find_format(name: str) -> tuple[WeightSpec, tuple[int, ...]] | None:
    """Returns the format by its name in recipes, which may end in its inputs' rounding
    (int4-g64-on-bf16), and the group sizes to choose from. Returns None for an unknown one."""
    body, mark, inputs = name.partition(INPUTS_MARK)
    first, sizes = split_groups(body)
    spec = RECIPE_FORMATS.get(first)
    if spec is not None and mark:
        possible = {str(one): one for one in spec.free_activations}
        spec = replace(spec, activations=possible[inputs]) if inputs in possible else None
    return None if spec is None else (spec, sizes)

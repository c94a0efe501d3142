"""Recipe: which format each part of a model gets. Its name says it: int4-g128-head-int8."""

from dataclasses import dataclass

from paredown.errors import ConfigError
from paredown.formats.table import FORMATS, GROUP_SIZES
from paredown.spec.weight import WeightSpec

HEAD = "-head-"
# For the help of every verb that takes recipes.
SYNTAX = (
    "bf16, fp16, fp32, fp8, int8, int8-asym, w8a8 (8-bit activations too), or int6, int5, int4, "
    f"int3, int2 with groups of {', '.join(map(str, GROUP_SIZES))}: int4-g128, int3-g32-asym; "
    f"{HEAD}FORMAT adds the output layer: int4-g128{HEAD}int8"
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """`linear` is for the linear layers of the transformer layers (a float format for every
    tensor), `head` for the output layer; None leaves that as `linear` alone would."""

    linear: WeightSpec
    head: WeightSpec | None = None

    @property
    def name(self) -> str:
        return self.linear.name + ("" if self.head is None else f"{HEAD}{self.head.name}")


def find_recipe(name: str) -> Recipe:
    """The recipe of that name. Raises ConfigError."""
    linear, separator, head = name.partition(HEAD)
    if not separator:
        return Recipe(linear=_find_format(linear))
    spec = _find_format(head)
    if not spec.is_quantized:
        raise ConfigError(
            f"{HEAD} must be followed by a quantized format",
            seen=name,
            remedy=f"Without {HEAD} the output layer keeps its floats; give int8, for one.",
        )
    return Recipe(linear=_find_format(linear), head=spec)


def _find_format(name: str) -> WeightSpec:
    if name not in FORMATS:
        raise ConfigError("there is no such format", seen=name, remedy=f"Known formats: {SYNTAX}.")
    return FORMATS[name]

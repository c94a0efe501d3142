"""WeightSpec: how the numbers of one linear layer are stored, and how it reads its input."""

from dataclasses import dataclass
from typing import Literal, cast

WeightDType = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int6", "int5", "int4", "int3", "int2"]
ScaleDType = Literal["fp32", "bf16", "fp16"]
# int8_group: one scale per row and group of columns; int8_row: one per row, found as it comes
# (dynamic); int8_static: one for all rows, stored with the weight (SmoothQuant, arXiv 2211.10438).
ActivationDType = Literal["int8_group", "int8_row", "int8_static", "bf16", "fp32"]

# fp8 is e4m3 as OCP's 8-bit formats define it (arXiv 2209.05433).
BITS: dict[WeightDType, int] = {
    "fp32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "int6": 6,
    "int5": 5,
    "int4": 4,
    "int3": 3,
    "int2": 2,
}
_OF_INTEGERS: tuple[ActivationDType, ...] = ("int8_group", "int8_row", "int8_static", "fp32")
# What a weight can be multiplied with, the default first.
ACTIVATIONS: dict[WeightDType, tuple[ActivationDType, ...]] = {
    "fp32": ("fp32",),
    "bf16": ("bf16", "fp32"),
    "fp16": ("fp32",),
    "fp8": ("bf16", "fp32"),
    "int8": _OF_INTEGERS,
    "int6": _OF_INTEGERS,
    "int5": _OF_INTEGERS,
    "int4": _OF_INTEGERS,
    "int3": _OF_INTEGERS,
    "int2": _OF_INTEGERS,
}
# The field's name for 8-bit weights and activations, one scale per row of each.
_W8A8: dict[ActivationDType, str] = {"int8_row": "w8a8", "int8_static": "w8a8-static"}
_AUTO = cast("ActivationDType", "auto")


@dataclass(frozen=True, kw_only=True)
class WeightSpec:
    """A stored form. `group_size` counts input columns sharing a scale; None is a whole row.
    `activations` is what the input is rounded to; left out, it becomes the dtype's default."""

    dtype: WeightDType
    group_size: int | None = None
    symmetric: bool = True
    activations: ActivationDType = _AUTO

    def __post_init__(self) -> None:
        if self.activations is _AUTO:
            object.__setattr__(self, "activations", self.possible_activations[0])
        assert self.activations in self.possible_activations, self

    @property
    def possible_activations(self) -> tuple[ActivationDType, ...]:
        """The default first. bf16 products are summed over a whole row before a scale."""
        if self.dtype == "fp8" and self.group_size is not None:
            return ("fp32",)
        return ACTIVATIONS[self.dtype]

    @property
    def is_integer(self) -> bool:
        return self.dtype.startswith("int")

    @property
    def is_quantized(self) -> bool:
        """Stored as codes with scales."""
        return self.is_integer or self.dtype == "fp8"

    @property
    def bits(self) -> int:
        return BITS[self.dtype]

    @property
    def name(self) -> str:
        """'bf16', 'int8', 'int8-asym', 'int4-g128', 'int4-g32-asym', 'fp8', 'w8a8', ..."""
        group = "" if self.group_size is None else f"-g{self.group_size}"
        plain = f"{self.dtype}{group}" + ("" if self.symmetric else "-asym")
        if self.activations == self.possible_activations[0]:
            return plain
        if plain == "int8" and self.activations in _W8A8:
            return _W8A8[self.activations]
        return f"{plain}-on-{self.activations}"

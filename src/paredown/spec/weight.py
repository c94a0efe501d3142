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
DEFAULT_ACTIVATIONS: dict[WeightDType, ActivationDType] = {
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp32",
    "fp8": "bf16",
    "int8": "int8_group",
    "int6": "int8_group",
    "int5": "int8_group",
    "int4": "int8_group",
    "int3": "int8_group",
    "int2": "int8_group",
}
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
            object.__setattr__(self, "activations", DEFAULT_ACTIVATIONS[self.dtype])
        assert self.is_integer or self.activations in ("bf16", "fp32"), self

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
        if self.activations == DEFAULT_ACTIVATIONS[self.dtype]:
            return plain
        if plain == "int8" and self.activations in _W8A8:
            return _W8A8[self.activations]
        return f"{plain}-on-{self.activations}"


# The field's name for 8-bit weights and activations, one scale per row of each.
_W8A8: dict[ActivationDType, str] = {"int8_row": "w8a8", "int8_static": "w8a8-static"}

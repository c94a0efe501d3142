"""WeightSpec: how the numbers of one linear layer are stored."""

from dataclasses import dataclass
from typing import Literal

WeightDType = Literal["fp32", "bf16", "fp16", "int8", "int4"]
ScaleDType = Literal["fp32", "bf16", "fp16"]

BITS: dict[WeightDType, int] = {"fp32": 32, "bf16": 16, "fp16": 16, "int8": 8, "int4": 4}


@dataclass(frozen=True, kw_only=True)
class WeightSpec:
    """A stored form. `group_size` counts input columns sharing a scale; None is a whole row."""

    dtype: WeightDType
    group_size: int | None = None
    symmetric: bool = True

    @property
    def is_integer(self) -> bool:
        return self.dtype in ("int8", "int4")

    @property
    def bits(self) -> int:
        return BITS[self.dtype]

    @property
    def name(self) -> str:
        """'bf16', 'int8', 'int8-asym', 'int4-g128', 'int4-g32-asym', ..."""
        group = "" if self.group_size is None else f"-g{self.group_size}"
        return f"{self.dtype}{group}" + ("" if self.symmetric else "-asym")

"""WeightSpec: how the numbers of one linear layer are stored, and how it reads its input."""

from dataclasses import dataclass, replace
from typing import Literal, cast

WeightDType = Literal[
    "fp32", "bf16", "fp16", "fp8", "int8", "int7", "int6", "int5", "int4", "int3", "int2", "int1"
]
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
    "int7": 7,
    "int6": 6,
    "int5": 5,
    "int4": 4,
    "int3": 3,
    "int2": 2,
    "int1": 1,
}
INTEGERS: tuple[WeightDType, ...] = tuple(dtype for dtype in BITS if dtype.startswith("int"))
_OF_INTEGERS: tuple[ActivationDType, ...] = ("int8_group", "int8_row", "int8_static", "fp32")
# What a weight can be multiplied with, the default first.
ACTIVATIONS: dict[WeightDType, tuple[ActivationDType, ...]] = {
    "fp32": ("fp32",),
    "bf16": ("bf16", "fp32"),
    "fp16": ("fp32",),
    "fp8": ("bf16", "fp32"),
    **dict.fromkeys(INTEGERS, _OF_INTEGERS),
}
# What the native core has no kernel for is held in the next wider codes, with the same values.
HELD_AS: dict[WeightDType, WeightDType] = {"int7": "int8", "int1": "int2"}
# The native core sums whole blocks of so many columns under one scale.
KERNEL_COLUMNS = 32
# Instruction sets with which the core packs bf16 for bf16 inputs with short exponents
# (docs/linear.md), and what such a weight takes on average where its numbers are normally
# distributed: 12 bits, 32 more for a block of 512 weights, 4 more a weight in 3 % of the blocks.
SHORT_BF16_ISAS = frozenset({"avx2", "avx2_vnni", "avx512", "avx512_bf16"})
SHORT_BF16_BITS = 12.2
# What the field's names of integer weights for 8-bit inputs (w8a8, w4a8-g128) end in.
_A8: dict[ActivationDType, str] = {"int8_row": "", "int8_static": "-static"}
_AUTO = cast("ActivationDType", "auto")


@dataclass(frozen=True, kw_only=True)
class WeightSpec:
    """A stored form. `group_size` counts input columns sharing a scale; None is a whole row.
    `activations` is what the input is rounded to; left out, it becomes the dtype's default.
    `integer_steps`: the scales of a row's int4 groups are 1 to 16 times one number (docs/qoq.md); a
    checkpoint does not say so, and a weight that was read never has it (models/running_formats.py
    looks)."""

    dtype: WeightDType
    group_size: int | None = None
    symmetric: bool = True
    activations: ActivationDType = _AUTO
    integer_steps: bool = False

    def __post_init__(self) -> None:
        if self.activations is _AUTO:
            object.__setattr__(self, "activations", self.possible_activations[0])
        assert self.activations in self.possible_activations, self
        assert not self.integer_steps or self.takes_integer_steps, self

    @property
    def possible_activations(self) -> tuple[ActivationDType, ...]:
        """The default first. bf16 products are summed over a whole row before a scale."""
        if self.dtype == "fp8" and self.group_size is not None:
            return ("fp32",)
        return ACTIVATIONS[self.dtype]

    @property
    def takes_integer_steps(self) -> bool:
        return self.dtype == "int4" and self.group_size is not None

    @property
    def is_integer(self) -> bool:
        return self.dtype.startswith("int")

    @property
    def has_input_scheme(self) -> bool:
        """Whether inputs are rounded to int8 with one scale for a whole row."""
        return self.activations in ("int8_row", "int8_static")

    @property
    def is_quantized(self) -> bool:
        """Stored as codes with scales."""
        return self.is_integer or self.dtype == "fp8"

    @property
    def bits(self) -> int:
        return BITS[self.dtype]

    def has_kernel(self, num_columns: int) -> bool:
        """Whether the native core multiplies with the codes of a weight of so many columns, in
        their own or in wider room; else it takes the weight dequantized."""
        size = self.group_size
        return size is None or size >= num_columns or size % KERNEL_COLUMNS == 0

    @property
    def name(self) -> str:
        """'bf16', 'int8-asym', 'int4-g32-asym', 'fp8', 'w8a8', 'w4a8-g128-qoq', ..."""
        group = "" if self.group_size is None else f"-g{self.group_size}"
        steps = "-qoq" if self.integer_steps else ""
        suffix = group + ("" if self.symmetric else "-asym") + steps
        plain = f"{self.dtype}{suffix}"
        if self.activations == self.possible_activations[0]:
            return plain
        if self.activations in _A8:
            return f"w{self.bits}a8{suffix}{_A8[self.activations]}"
        return f"{plain}-on-{self.activations}"


def bits_per_weight(spec: WeightSpec, num_columns: int, scale_dtype: ScaleDType = "bf16") -> float:
    """Stored bits over the weights of a row of `num_columns`: codes, scales and zero points."""
    if not spec.is_quantized:
        return float(spec.bits)
    per_group = BITS[scale_dtype] + (0 if spec.symmetric else spec.bits)
    return spec.bits + per_group / (spec.group_size or num_columns)


def native_bits_per_weight(
    spec: WeightSpec, num_columns: int, *, short_bf16: bool = False
) -> float:
    """What a weight takes in the core, scales counted as bf16, and so what is dequantized. With
    integer steps a group has a byte for its step, one more for a zero point, and a row a scale.
    `short_bf16`: the core runs with one of SHORT_BF16_ISAS; without it, what bf16 takes at most."""
    dequantized = spec.is_quantized and not spec.has_kernel(num_columns)
    if dequantized or (spec.dtype == "bf16" and spec.activations == "bf16"):
        return SHORT_BF16_BITS if short_bf16 else 16.0
    if spec.integer_steps:
        assert spec.group_size is not None, spec
        group_bits = 8 if spec.symmetric else 16
        return spec.bits + group_bits / spec.group_size + BITS["bf16"] / num_columns
    return bits_per_weight(replace(spec, dtype=HELD_AS.get(spec.dtype, spec.dtype)), num_columns)

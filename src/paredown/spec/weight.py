"""WeightSpec: how the numbers of one linear layer are stored, and how it reads its input."""

from dataclasses import dataclass, replace
from typing import Literal, cast

WeightDType = Literal[
    "fp32",
    "bf16",
    "fp16",
    "fp8",
    "int8",
    "int7",
    "int6",
    "int5",
    "int4",
    "int3",
    "int2",
    "int1",
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "iq4_xs",
    "q4_1",
    "q5_1",
    "iq4_nl",
    "mxfp4",
]
ScaleDType = Literal["fp32", "bf16", "fp16"]
# int8_group: one scale per row and group of columns; int16_group: the sum of two such codes, each
# with a scale; int8_row: one dynamic scale per row; int8_static: one scale for all rows, stored
# with the weight (SmoothQuant, arXiv 2211.10438).
ActivationDType = Literal["int8_group", "int16_group", "int8_row", "int8_static", "bf16", "fp32"]

_INTEGER_INPUTS: tuple[ActivationDType, ...] = (
    "int8_group",
    "int16_group",
    "int8_row",
    "int8_static",
    "bf16",
    "fp32",
)


@dataclass(frozen=True, kw_only=True)
class SuperBlock:
    """A run of a row's columns whose codes and scales lie together. `num_bytes` counts what is
    stored, `held_bytes` what the core holds where that differs."""

    num_columns: int
    num_bytes: int
    held_bytes: int | None = None

    def row_bytes(self, num_columns: int) -> int:
        """Returns the bytes of a row of `num_columns`, which must be a multiple of the block's
        columns."""
        return num_columns // self.num_columns * self.num_bytes


@dataclass(frozen=True, kw_only=True)
class DTypeTraits:
    """The properties of a weight's dtype.

    `bits`         bits of a stored number
    `activations`  the inputs it can be multiplied with, the default first
    `is_coded`     whether a number needs a scale to have a value
    `held_as`      the dtype that the native core holds instead, with the same values, if it has no
                   kernel for this one
    `block`        the super-block, for codes that lie in blocks with their own scales
    """

    bits: int
    activations: tuple[ActivationDType, ...] = _INTEGER_INPUTS
    is_coded: bool = True
    held_as: WeightDType | None = None
    block: SuperBlock | None = None


def _blocks(
    bits: int, num_columns: int, num_bytes: int, *, held_bytes: int | None = None
) -> DTypeTraits:
    block = SuperBlock(num_columns=num_columns, num_bytes=num_bytes, held_bytes=held_bytes)
    return DTypeTraits(bits=bits, activations=("int8_group", "int16_group"), block=block)


# fp8 is e4m3 as OCP's 8-bit formats define it (arXiv 2209.05433).
DTYPES: dict[WeightDType, DTypeTraits] = {
    "fp32": DTypeTraits(bits=32, activations=("fp32",), is_coded=False),
    "bf16": DTypeTraits(bits=16, activations=("bf16", "fp32"), is_coded=False),
    "fp16": DTypeTraits(bits=16, activations=("fp32",), is_coded=False),
    "fp8": DTypeTraits(bits=8, activations=("bf16", "fp32")),
    "int8": DTypeTraits(bits=8),
    "int7": DTypeTraits(bits=7, held_as="int8"),
    "int6": DTypeTraits(bits=6),
    "int5": DTypeTraits(bits=5),
    "int4": DTypeTraits(bits=4),
    "int3": DTypeTraits(bits=3),
    "int2": DTypeTraits(bits=2),
    "int1": DTypeTraits(bits=1, held_as="int2"),
    "q2_k": _blocks(2, 256, 84),
    "q3_k": _blocks(3, 256, 110),
    "q4_k": _blocks(4, 256, 144),
    "q5_k": _blocks(5, 256, 176),
    "q6_k": _blocks(6, 256, 210),
    "iq4_xs": _blocks(4, 256, 136, held_bytes=138),
    "q4_1": _blocks(4, 32, 20),
    "q5_1": _blocks(5, 32, 24),
    "iq4_nl": _blocks(4, 32, 18),
    "mxfp4": _blocks(4, 32, 17, held_bytes=18),
}
INTEGERS: tuple[WeightDType, ...] = tuple(dtype for dtype in DTYPES if dtype.startswith("int"))
# The native core sums whole blocks of this many columns under one scale.
KERNEL_COLUMNS = 32
# Instruction sets with which the core packs bf16 for bf16 inputs with short exponents
# (docs/internals/linear.md). For normally distributed numbers such a weight takes 12.2 bits on
# average.
SHORT_BF16_ISAS = frozenset({"avx2", "avx2_vnni", "avx512", "avx512_bf16"})
SHORT_BF16_BITS = 12.2
# Inputs with one scale for a whole row, which files store as a scheme of their own.
_SCHEMES: tuple[ActivationDType, ...] = ("int8_row", "int8_static")
# The suffixes of the usual names of integer weights with 8-bit inputs (w8a8, w4a8-g128).
_A8: dict[ActivationDType, str] = {"int8_row": "", "int8_static": "-static"}
_AUTO = cast("ActivationDType", "auto")


@dataclass(frozen=True, kw_only=True)
class WeightSpec:
    """A stored format of a weight.

    `group_size` counts the input columns that share a scale; None means a whole row. `activations`
    is what the input is rounded to; left out, it becomes the dtype's default. `integer_steps` asks
    for int4 group scales that are 1 to 16 times the row's scale (docs/methods/qoq.md). A
    checkpoint does not record these; spec/run_form.py says what runs.
    """

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
    def traits(self) -> DTypeTraits:
        return DTYPES[self.dtype]

    @property
    def possible_activations(self) -> tuple[ActivationDType, ...]:
        """The possible inputs, the default first. bf16 products with fp8 are summed over a whole
        row before a scale is applied."""
        if self.dtype == "fp8" and self.group_size is not None:
            return ("fp32",)
        return self.traits.activations

    @property
    def free_activations(self) -> tuple[ActivationDType, ...]:
        """The possible inputs that any weight of this format can take without an input scheme in
        its file."""
        return tuple(one for one in self.possible_activations if one not in _SCHEMES)

    @property
    def takes_integer_steps(self) -> bool:
        return self.dtype == "int4" and self.group_size is not None

    @property
    def is_integer(self) -> bool:
        return self.dtype.startswith("int")

    @property
    def has_input_scheme(self) -> bool:
        """Whether inputs are rounded to int8 with one scale for a whole row."""
        return self.activations in _SCHEMES

    @property
    def num_input_codes(self) -> int:
        """The number of codes per number of the input; the weight is multiplied with each of
        them."""
        return 2 if self.activations == "int16_group" else 1

    @property
    def as_stored(self) -> "WeightSpec":
        """The spec that follows from the stored format alone. It includes input schemes but no
        other inputs (models/stored_inputs.py)."""
        return self if self.has_input_scheme else replace(self, activations=_AUTO)

    @property
    def is_quantized(self) -> bool:
        """Whether the weight is stored as codes with scales."""
        return self.traits.is_coded

    @property
    def is_grid(self) -> bool:
        """Whether the weight is stored as codes on a grid, with separate scales."""
        return self.is_integer or self.dtype == "fp8"

    @property
    def bits(self) -> int:
        return self.traits.bits

    def has_kernel(self, num_columns: int) -> bool:
        """Returns whether the native core multiplies with the codes of a weight with
        `num_columns`, in their own or a wider dtype; otherwise it dequantizes the weight."""
        size = self.group_size
        return size is None or size >= num_columns or size % KERNEL_COLUMNS == 0

    @property
    def name(self) -> str:
        """The format's name: 'bf16', 'int8-asym', 'int4-g32-asym', 'fp8', 'w8a8', 'w4a8-g128-qoq',
        ..."""
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
    """Returns the stored bits per weight of a row of `num_columns`: codes, scales and zero
    points."""
    if not spec.is_quantized:
        return float(spec.bits)
    block = spec.traits.block
    if block is not None:
        return 8 * block.num_bytes / block.num_columns
    per_group = DTYPES[scale_dtype].bits + (0 if spec.symmetric else spec.bits)
    return spec.bits + per_group / (spec.group_size or num_columns)

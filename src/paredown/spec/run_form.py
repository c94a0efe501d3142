"""RunForm: how a stored weight runs on the native core."""

from dataclasses import dataclass, replace

from paredown.spec.weight import (
    DTYPES,
    SHORT_BF16_BITS,
    ActivationDType,
    ScaleDType,
    WeightDType,
    WeightSpec,
    bits_per_weight,
)

# A bitmap is held where it takes at most these shares of the dense values' bits: the least share of
# the dense kernel's bandwidth that the kernel of bitmaps reaches (csrc/weights/bitmap.cpp).
_WORTHWHILE_INT8, _WORTHWHILE_BF16 = 0.8, 0.6


@dataclass(frozen=True, kw_only=True)
class RunForm:
    """How the core holds a weight and what it rounds the input to.

    `stored`          the form that the weight was stored in
    `kind`            the dtype of the codes or floats in the core's memory
    `group_size`      columns that share a scale; None means a whole row
    `symmetric`       whether there are no zero points
    `activations`     what the input is rounded to
    `integer_steps`   the scales of a row's int4 groups are 1 to 16 times one number, and the weight
                      runs as int8 rows (docs/methods/qoq.md)
    `is_dequantized`  no kernel takes the stored codes, so floats are held instead
    """

    stored: WeightSpec
    kind: WeightDType
    group_size: int | None
    symmetric: bool
    activations: ActivationDType
    integer_steps: bool
    is_dequantized: bool

    @property
    def asked(self) -> WeightSpec:
        """The format that a recipe asks for to make a weight run like this."""
        return replace(self.stored, integer_steps=self.integer_steps)

    @property
    def may_have_steps(self) -> bool:
        """Whether the weight may have integer steps: int4 groups whose inputs have one scale per
        row."""
        has_row_inputs = self.activations in ("int8_row", "int8_static")
        return has_row_inputs and self.kind == "int4" and self.group_size is not None

    @property
    def has_rows(self) -> bool:
        """Whether single rows can be read from the packed weight. An embedding then has the layout
        of a linear layer, and a tied one is held once. This holds for floats, blocks, and integers
        that cannot have integer steps."""
        traits = DTYPES[self.kind]
        if not traits.is_coded or traits.block is not None:
            return True
        return self.kind != "fp8" and not self.may_have_steps

    def with_steps(self) -> "RunForm":
        """Returns the form of a weight whose scales turned out to be integer steps."""
        return replace(self, integer_steps=True)

    def bitmap_bits_saved(self, zeros: float, *, short_bf16: bool = False) -> float:
        """Returns the bits per weight that a bitmap saves where that share of the weights is zero;
        0 where the core holds no bitmap (csrc/weights/bitmap.cpp)."""
        if self.kind == "int8" and self.symmetric and self.activations.startswith("int8"):
            bits, worthwhile = 8, _WORTHWHILE_INT8
        elif self.kind == "bf16" and self.activations == "bf16":
            bits, worthwhile = 12 if short_bf16 else 16, _WORTHWHILE_BF16
        else:
            return 0.0
        held = 1 + (1 - zeros) * bits
        return bits - held if held <= worthwhile * bits else 0.0

    def bits_per_weight(self, num_columns: int, *, short_bf16: bool = False) -> float:
        """Returns the bits per weight in the core, for a row of `num_columns` and scales counted
        as bf16.

        With integer steps a group takes one byte for its step and one for a zero point, and a row
        takes one scale. `short_bf16` says that the core's instruction set is one of
        SHORT_BF16_ISAS; without it the result is the most that bf16 takes.
        """
        if self.kind == "bf16" and self.activations == "bf16":
            return SHORT_BF16_BITS if short_bf16 else float(DTYPES["bf16"].bits)
        if self.integer_steps:
            assert self.group_size is not None, self
            group_bits = 8 if self.symmetric else 16
            row_bits = DTYPES["bf16"].bits / num_columns
            return DTYPES[self.kind].bits + group_bits / self.group_size + row_bits
        block = DTYPES[self.kind].block
        if block is not None:
            return 8 * (block.held_bytes or block.num_bytes) / block.num_columns
        held = WeightSpec(dtype=self.kind, group_size=self.group_size, symmetric=self.symmetric)
        return bits_per_weight(held, num_columns)


def run_form(spec: WeightSpec, num_columns: int, *, scale_dtype: ScaleDType = "bf16") -> RunForm:
    """Returns how a weight of that spec runs: on its codes, in their own or a wider dtype, where a
    kernel takes them; else on floats of `scale_dtype`."""
    is_dequantized = spec.is_quantized and not spec.has_kernel(num_columns)
    held = WeightSpec(dtype=scale_dtype) if is_dequantized else spec
    return RunForm(
        stored=spec,
        kind=held.traits.held_as or held.dtype,
        group_size=held.group_size,
        symmetric=held.symmetric,
        activations=held.activations,
        integer_steps=held.integer_steps,
        is_dequantized=is_dequantized,
    )


def table_bits(spec: WeightSpec, num_columns: int, scale_dtype: ScaleDType = "bf16") -> float:
    """Returns the bits per weight of an embedding that is not tied. It is held like a linear layer
    where single rows can be read, else as floats of `scale_dtype`."""
    form = run_form(spec, num_columns, scale_dtype=scale_dtype)
    if not DTYPES[form.kind].is_coded:
        return DTYPES[form.kind].bits
    return form.bits_per_weight(num_columns) if form.has_rows else DTYPES[scale_dtype].bits

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


@dataclass(frozen=True, kw_only=True)
class RunForm:
    """What the core holds of a weight, and how it meets its input.

    `stored`          the form that the weight was stored in
    `kind`            the dtype of the codes or floats in the core's memory
    `group_size`      columns that share a scale; None is a whole row
    `symmetric`       whether there are no zero points
    `activations`     what the input is rounded to
    `integer_steps`   the scales of a row's int4 groups are 1 to 16 times one number, and the weight
                      runs as int8 rows (docs/methods/qoq.md)
    `is_dequantized`  the stored codes have no kernel, and floats are held in their place
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
        """What a recipe asks for to have a weight run like this."""
        return replace(self.stored, integer_steps=self.integer_steps)

    @property
    def may_have_steps(self) -> bool:
        """Whether its scales are worth a look: int4 groups whose inputs have a scale for a row."""
        has_row_inputs = self.activations in ("int8_row", "int8_static")
        return has_row_inputs and self.kind == "int4" and self.group_size is not None

    @property
    def has_rows(self) -> bool:
        """Whether single rows are read out of the panels of such a weight, so that an embedding is
        held like a linear layer, once where it is tied: floats, blocks, and integers that are not
        multiplied in steps."""
        traits = DTYPES[self.kind]
        if not traits.is_coded or traits.block is not None:
            return True
        return self.kind != "fp8" and not self.may_have_steps

    def with_steps(self) -> "RunForm":
        """The form once the scales turned out to be integer steps."""
        return replace(self, integer_steps=True)

    def bits_per_weight(self, num_columns: int, *, short_bf16: bool = False) -> float:
        """What a weight of a row of `num_columns` takes in the core, scales counted as bf16. With
        integer steps a group has a byte for its step, one more for a zero point, and a row a scale.
        `short_bf16`: the core runs with one of SHORT_BF16_ISAS; without it, what bf16 takes at
        most."""
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
    """How a weight of that spec and so many columns runs: its codes where they have a kernel, in
    their own or in wider room, else floats of `scale_dtype`."""
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
    """Bits of a weight of an embedding of its own: as that of a linear layer where rows of such a
    one can be read, floats of `scale_dtype` in place of other codes."""
    form = run_form(spec, num_columns, scale_dtype=scale_dtype)
    if not DTYPES[form.kind].is_coded:
        return DTYPES[form.kind].bits
    return form.bits_per_weight(num_columns) if form.has_rows else DTYPES[scale_dtype].bits

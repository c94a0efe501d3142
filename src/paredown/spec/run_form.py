"""RunForm: how a stored weight runs on the native core."""

from dataclasses import dataclass, replace

from paredown.spec.weight import (
    BITS,
    HELD_AS,
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

    `kind`            the dtype of the codes or floats in the core's memory
    `group_size`      columns that share a scale; None is a whole row
    `symmetric`       whether there are no zero points
    `activations`     what the input is rounded to
    `integer_steps`   the scales of a row's int4 groups are 1 to 16 times one number, and the weight
                      runs as int8 rows (docs/qoq.md)
    `is_dequantized`  the stored codes have no kernel, and floats are held in their place
    """

    kind: WeightDType
    group_size: int | None
    symmetric: bool
    activations: ActivationDType
    integer_steps: bool = False
    is_dequantized: bool = False

    @property
    def has_input_scheme(self) -> bool:
        """Whether inputs are rounded to int8 with one scale for a whole row."""
        return self.activations in ("int8_row", "int8_static")

    def bits_per_weight(self, num_columns: int, *, short_bf16: bool = False) -> float:
        """What a weight of a row of `num_columns` takes in the core, scales counted as bf16. With
        integer steps a group has a byte for its step, one more for a zero point, and a row a scale.
        `short_bf16`: the core runs with one of SHORT_BF16_ISAS; without it, what bf16 takes at
        most."""
        if self.kind == "bf16" and self.activations == "bf16":
            return SHORT_BF16_BITS if short_bf16 else float(BITS["bf16"])
        if self.integer_steps:
            assert self.group_size is not None, self
            group_bits = 8 if self.symmetric else 16
            return BITS[self.kind] + group_bits / self.group_size + BITS["bf16"] / num_columns
        held = WeightSpec(dtype=self.kind, group_size=self.group_size, symmetric=self.symmetric)
        return bits_per_weight(held, num_columns)


def run_form(
    spec: WeightSpec,
    num_columns: int,
    *,
    activations: ActivationDType | None = None,
    scale_dtype: ScaleDType = "bf16",
) -> RunForm:
    """How a weight of that spec and so many columns runs: its codes where they have a kernel, in
    their own or in wider room, else floats of `scale_dtype`. `activations` None reads the input as
    the spec says."""
    is_dequantized = spec.is_quantized and not spec.has_kernel(num_columns)
    held = WeightSpec(dtype=scale_dtype) if is_dequantized else spec
    return RunForm(
        kind=HELD_AS.get(held.dtype, held.dtype),
        group_size=held.group_size,
        symmetric=held.symmetric,
        activations=activations or held.activations,
        integer_steps=held.integer_steps,
        is_dequantized=is_dequantized,
    )


def with_steps(form: RunForm) -> RunForm:
    """The form of a weight whose scales turned out to be integer steps."""
    return replace(form, integer_steps=True)

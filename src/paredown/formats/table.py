"""The formats a model can be compressed to, by name, with their traits."""

from dataclasses import dataclass

from paredown.spec.weight import BITS, ScaleDType, WeightSpec


@dataclass(frozen=True, kw_only=True)
class Format:
    """One row. `quantizes_activations`: the native core rounds the inputs of such a layer to int8,
    per row and group of columns, so that it multiplies integers."""

    spec: WeightSpec
    quantizes_activations: bool

    @property
    def name(self) -> str:
        return self.spec.name


def _row(spec: WeightSpec) -> Format:
    return Format(spec=spec, quantizes_activations=spec.is_integer)


FORMATS: dict[str, Format] = {
    "fp32": _row(WeightSpec(dtype="fp32")),
    "bf16": _row(WeightSpec(dtype="bf16")),
    "fp16": _row(WeightSpec(dtype="fp16")),
    "int8": _row(WeightSpec(dtype="int8")),
    "int8-asym": _row(WeightSpec(dtype="int8", symmetric=False)),
    "int4-g32": _row(WeightSpec(dtype="int4", group_size=32)),
    "int4-g32-asym": _row(WeightSpec(dtype="int4", group_size=32, symmetric=False)),
    "int4-g64": _row(WeightSpec(dtype="int4", group_size=64)),
    "int4-g64-asym": _row(WeightSpec(dtype="int4", group_size=64, symmetric=False)),
    "int4-g128": _row(WeightSpec(dtype="int4", group_size=128)),
    "int4-g128-asym": _row(WeightSpec(dtype="int4", group_size=128, symmetric=False)),
}


def bits_per_weight(spec: WeightSpec, num_columns: int, scale_dtype: ScaleDType = "bf16") -> float:
    """Stored bits over the weights of a row of `num_columns`: codes, scales and zero points."""
    if not spec.is_integer:
        return float(spec.bits)
    per_group = BITS[scale_dtype] + (0 if spec.symmetric else spec.bits)
    return spec.bits + per_group / (spec.group_size or num_columns)

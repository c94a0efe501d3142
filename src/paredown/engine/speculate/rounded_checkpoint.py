"""RoundedCheckpoint: a draft model's float weights as int8, rounded to nearest as they are loaded.

A draft model's time goes into reading its weights, of which the output layer is most. In int8 these
are half the bytes, and its draft tokens are right as often as before
(docs/internals/speculation.md). What it proposes changes no answer.
"""

from dataclasses import dataclass, fields

from paredown.formats.quantize import quantize
from paredown.formats.weight import CoreWeight
from paredown.models.checkpoint import Checkpoint
from paredown.spec.weight import WeightSpec

_SPEC = WeightSpec(dtype="int8")


@dataclass(frozen=True, kw_only=True)
class RoundedCheckpoint(Checkpoint):
    """Weights that are stored as codes stay what they are, and so do tables, norms and routers. A
    tied output layer is rounded all the same: `weight_specs` has it under the embedding's name."""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "RoundedCheckpoint":
        return cls(**{one.name: getattr(checkpoint, one.name) for one in fields(checkpoint)})

    def linear(self, role: str, layer: int) -> CoreWeight:
        return _rounded(super().linear(role, layer))

    def output(self) -> CoreWeight:
        return _rounded(super().output())

    def weight_specs(self) -> dict[str, WeightSpec]:
        specs = super().weight_specs()
        return {name: spec if spec.is_quantized else _SPEC for name, spec in specs.items()}


def _rounded(weight: CoreWeight) -> CoreWeight:
    """One scale for each row."""
    if weight.spec.is_quantized:
        return weight
    return quantize(weight.dequantize(), _SPEC, "bf16")

"""RoundedCheckpoint: rounds a draft model's float weights to int8 as they are loaded.

A draft model spends its time on reading weights, most of them in the output layer. In int8 these
are half the bytes, with the same acceptance (docs/internals/speculation.md). Drafts never change an
answer.
"""

from dataclasses import dataclass, fields

from paredown.formats.quantize import quantize
from paredown.formats.weight import CoreWeight
from paredown.models.checkpoint import Checkpoint
from paredown.spec.weight import WeightSpec

_SPEC = WeightSpec(dtype="int8")


@dataclass(frozen=True, kw_only=True)
class RoundedCheckpoint(Checkpoint):
    """Weights stored as codes stay unchanged, and so do embeddings, norms and routers. A tied
    output layer is rounded as well: `weight_specs` lists it under the embedding's name."""

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
    """Rounds a weight with one scale per row."""
    if weight.spec.is_quantized:
        return weight
    return quantize(weight.dequantize(), _SPEC, "bf16")

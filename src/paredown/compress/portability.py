"""Limits of other programs with a written checkpoint."""

from paredown.formats.stored.compressed_tensors.form import CompressedForm
from paredown.models.checkpoint import Checkpoint
from paredown.spec.experts import expert_index

# Seen with compressed-tensors 0.20. It merges a layer's experts into one tensor if they have fp8 or
# packed codes without zero points, and fails on anything else.
LIBRARY = "Transformers 5.23"


def portability_notes(written: Checkpoint) -> tuple[str, ...]:
    """Returns notes on what Transformers does not load: experts whose inputs are quantized too, or
    whose packed codes have zero points."""
    reasons = set()
    for layer in range(written.spec.num_layers):
        for role in written.spec.linear_shapes(layer):
            if expert_index(role) is None:
                continue
            form = written.forms.get(written.linear_name(role, layer))
            if not isinstance(form, CompressedForm):
                continue
            if form.form == "int-quantized":
                reasons.add("int-quantized experts (their inputs have a scheme too)")
            elif not form.spec.symmetric:
                reasons.add("experts with zero points")
    return tuple(
        f"{LIBRARY} does not load {reason}; Paredown runs this folder" for reason in sorted(reasons)
    )

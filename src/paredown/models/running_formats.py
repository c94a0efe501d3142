"""How the linear layers of a checkpoint run, where that is more than what its config says."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from paredown.formats.integer_steps import integer_steps, steps_of
from paredown.formats.weight import CoreWeight
from paredown.models.checkpoint import Checkpoint
from paredown.models.roles import linear_places
from paredown.spec.weight import WeightSpec

# As compressed-tensors names them, whose folders alone have int4 groups for 8-bit inputs.
_SCALES = "weight_scale"


def running_specs(checkpoint: Checkpoint) -> dict[str, WeightSpec]:
    """`Checkpoint.weight_specs`, with `integer_steps` where the scales have them (docs/qoq.md), as
    loading finds them. Of the weights only scales are read; those with zero points whose scales
    have steps are read whole. Raises CheckpointError."""
    names, specs = checkpoint.names, checkpoint.weight_specs()
    weights: dict[str, Callable[[], CoreWeight]] = {
        checkpoint.linear_name(role, layer): partial(checkpoint.linear, role, layer)
        for role, layer in linear_places(checkpoint.spec)
    }
    if not checkpoint.spec.tied_embeddings:
        weights[names.output] = checkpoint.output
    for module, read in weights.items():
        spec = specs[module]
        if not (spec.takes_integer_steps and spec.has_input_scheme):
            continue
        scales_OG = checkpoint.tensors[f"{module}.{_SCALES}"].to_float32()
        if scales_OG.shape[1] == 1 or steps_of(scales_OG) is None:
            continue
        if spec.symmetric or integer_steps(read()) is not None:
            specs[module] = replace(spec, integer_steps=True)
    return specs

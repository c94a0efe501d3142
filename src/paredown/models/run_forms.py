"""Determines how the linear layers of a checkpoint run, for the cost model."""

from collections import Counter

from paredown.cost.model_formats import ModelFormats, ZeroWeights
from paredown.formats.integer_steps import integer_steps, steps_of
from paredown.models.check_tensors import linear_modules
from paredown.models.checkpoint import Checkpoint
from paredown.models.pruned_modules import zeros_share
from paredown.models.roles import linear_places
from paredown.spec.run_form import RunForm, run_form, table_bits

# The name in compressed-tensors; only its folders have int4 groups for 8-bit inputs.
_SCALES = "weight_scale"


def run_forms(checkpoint: Checkpoint) -> dict[str, RunForm]:
    """Returns the run forms by module, as loading finds them. Integer steps (docs/methods/qoq.md)
    show in the scales, so only scales are read; a weight with zero points whose scales have steps
    is read whole. Raises CheckpointError."""
    names, specs = checkpoint.names, checkpoint.weight_specs()
    shapes = {one.name: one.shape for one in linear_modules(checkpoint.spec, names)}
    shapes[names.embedding] = (checkpoint.spec.vocab_size, checkpoint.spec.hidden_size)
    forms = {module: run_form(spec, shapes[module][1]) for module, spec in specs.items()}
    for one in linear_modules(checkpoint.spec, names):
        module, form = one.name, forms[one.name]
        if not form.may_have_steps:
            continue
        scales_OG = checkpoint.tensors[f"{module}.{_SCALES}"].to_float32()
        if scales_OG.shape[1] == 1 or steps_of(scales_OG) is None:
            continue
        if form.symmetric or integer_steps(checkpoint.coded(module)) is not None:
            forms[module] = form.with_steps()
    return forms


def model_formats(checkpoint: Checkpoint) -> ModelFormats:
    """Returns the formats that the cost model needs beside the spec: of most linear layers as they
    run, of the output layer, of the embedding as the core keeps it, and of keys and values."""
    forms, names = run_forms(checkpoint), checkpoint.names
    linear = Counter(
        forms[checkpoint.linear_name(role, layer)].asked
        for role, layer in linear_places(checkpoint.spec)
    )
    own = names.output if checkpoint.spec.has_own_output else names.embedding
    return ModelFormats(
        linear=linear.most_common(1)[0][0],
        output=forms[own].asked,
        embedding_bits=table_bits(forms[names.embedding].stored, checkpoint.spec.hidden_size),
        kv_dtype=checkpoint.kv_dtype,
        zeros=_zeros(checkpoint),
    )


def _zeros(checkpoint: Checkpoint) -> tuple[ZeroWeights, ...]:
    """Returns the zeros that the checkpoint's record of pruned modules tells of; no weight is
    read."""
    if not checkpoint.pruned:
        return ()
    counts: Counter[float] = Counter()
    for role, layer in linear_places(checkpoint.spec):
        rows, columns = checkpoint.spec.linear_shapes(layer)[role]
        pattern = checkpoint.pruned.get(checkpoint.linear_name(role, layer))
        counts[0.0 if pattern is None else zeros_share(pattern)] += rows * columns
    total = counts.total()
    return tuple(
        ZeroWeights(part=count / total, zeros=zeros) for zeros, count in counts.items() if zeros
    )

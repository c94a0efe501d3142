"""Plans the memory of a checkpoint on the native executor, from shapes and formats alone."""

from itertools import chain

from paredown.executors.memory_plan import MemoryPlan
from paredown.executors.native.tied_embedding import embedding_is_output
from paredown.executors.page_memory import PLANNED_STEP_TOKENS
from paredown.kernels.native_model import planned_encode_bytes, planned_step_bytes
from paredown.kernels.padded_heads import with_padded_heads
from paredown.models.check_tensors import head_modules
from paredown.models.checkpoint import Checkpoint
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context
from paredown.spec.kv import KVSpec
from paredown.spec.run_form import run_form, table_bits
from paredown.spec.weight import WeightSpec


def plan_memory(
    checkpoint: Checkpoint, kv: KVSpec, num_threads: int, sinks: AttentionSinks | None = None
) -> MemoryPlan:
    """Returns the plan with the pages of `kv`, for steps on `num_threads` threads."""
    spec = with_padded_heads(checkpoint.spec)
    context = Context(spec=spec, sinks=sinks)
    linear_bytes = sum(_linear_bytes(checkpoint).values())
    by_layer = [spec.linear_shapes(layer).values() for layer in range(spec.num_layers)]
    shapes = [*chain(*by_layer), (spec.vocab_size, spec.hidden_size)]
    return MemoryPlan(
        weight_bytes=linear_bytes + _output_bytes(checkpoint),
        embedding_bytes=_embedding_bytes(checkpoint),
        kv_bytes=kv.num_pages * kv.page_bytes(spec),
        step_bytes=_step_bytes(context, kv, num_threads),
        load_bytes=4 * max(rows * columns for rows, columns in shapes),
    )


def plan_encoder_memory(checkpoint: Checkpoint, kv: KVSpec, num_threads: int) -> MemoryPlan:
    """Returns the plan of an encoder on `num_threads` threads, for texts as long as it takes. Keys
    and values are part of its working memory."""
    spec = with_padded_heads(checkpoint.spec)
    settings = checkpoint.encoder_settings
    max_tokens = spec.max_positions if settings is None else settings.max_tokens
    shapes = [
        shape for layer in range(spec.num_layers) for shape in spec.linear_shapes(layer).values()
    ]
    head = {} if spec.head is None else spec.head.step_shapes(spec.hidden_size)
    load_shapes = [*shapes, *head.values(), (spec.vocab_size, spec.hidden_size)]
    own_output = _output_bytes(checkpoint) if spec.generates else 0
    return MemoryPlan(
        weight_bytes=sum(_linear_bytes(checkpoint).values())
        + own_output
        + sum(_head_bytes(checkpoint).values()),
        embedding_bytes=_embedding_bytes(checkpoint),
        kv_bytes=0,
        step_bytes=planned_encode_bytes(
            Context(spec=spec), kv, num_threads, min(max_tokens, spec.max_positions)
        ),
        load_bytes=4 * max(rows * columns for rows, columns in load_shapes),
    )


def _head_bytes(checkpoint: Checkpoint) -> dict[str, int]:
    """Returns the bytes of the weights of the head's steps, by role."""
    spec, head = checkpoint.spec, checkpoint.spec.head
    if head is None:
        return {}
    steps, sizes = head.steps_by_role(), {}
    stored = checkpoint.weight_specs()
    modules = {one.roles[0]: one.name for one in head_modules(spec, checkpoint.names)}
    for role, (rows, columns) in head.step_shapes(spec.hidden_size).items():
        bits = 32.0
        own = stored.get(modules.get(role, ""))
        if steps[role].is_tied:
            own = checkpoint.embedding_spec()
        if own is not None and (steps[role].is_tied or own.is_quantized):
            bits = run_form(own, columns).bits_per_weight(columns)
        sizes[role] = int(rows * columns * bits / 8)
    return sizes


def _linear_bytes(checkpoint: Checkpoint) -> dict[str, int]:
    specs, spec = checkpoint.weight_specs(), with_padded_heads(checkpoint.spec)
    sizes = {}
    for layer in range(spec.num_layers):
        is_padded = spec.layers[layer] != checkpoint.spec.layers[layer]
        for role, (rows, columns) in spec.linear_shapes(layer).items():
            stored = specs[checkpoint.linear_name(role, layer)]
            if is_padded and role == "o" and stored.is_quantized:
                stored = WeightSpec(dtype="bf16")
            bits = run_form(stored, columns).bits_per_weight(columns)
            sizes[f"{layer}.{role}"] = int(rows * columns * bits / 8)
        for role, (rows, columns) in checkpoint.spec.router_shapes(layer).items():
            sizes[f"{layer}.{role}"] = rows * columns * 4
    return sizes


def _output_bytes(checkpoint: Checkpoint) -> int:
    spec = checkpoint.spec
    names = checkpoint.names
    own = names.embedding if spec.is_tied else names.output
    form = run_form(checkpoint.weight_specs()[own], spec.hidden_size)
    bits = form.bits_per_weight(spec.hidden_size)
    return int(spec.vocab_size * spec.hidden_size * bits / 8)


def _embedding_bytes(checkpoint: Checkpoint) -> int:
    """Returns the embedding's bytes; 0 where its rows are read from the output layer."""
    if embedding_is_output(checkpoint):
        return 0
    spec = checkpoint.spec
    bits = table_bits(checkpoint.embedding_spec(), spec.hidden_size)
    return int(spec.vocab_size * spec.hidden_size * bits / 8)


def _step_bytes(context: Context, kv: KVSpec, num_threads: int) -> int:
    """Returns the bytes of the core's buffers, by its own count, and of the logits."""
    buffers = planned_step_bytes(context, kv, num_threads, PLANNED_STEP_TOKENS)
    return buffers + PLANNED_STEP_TOKENS * context.spec.vocab_size * 4

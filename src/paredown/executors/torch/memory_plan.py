"""Plans the memory of a checkpoint on the torch executor, from shapes alone."""

from paredown.executors.memory_plan import MemoryPlan
from paredown.executors.page_memory import PLANNED_STEP_TOKENS
from paredown.executors.torch.sight import padded
from paredown.executors.torch.tiles import TILE_FORMS
from paredown.spec.context import Context
from paredown.spec.device import Device
from paredown.spec.kv import PAGE_SIZE, KVSpec
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec

_FLOAT_BYTES = 4
# cuBLAS keeps 32 MB for each of two streams, and loads its kernels on first use.
_LIBRARY_BYTES = 256 << 20


def plan_memory(context: Context, kv: KVSpec, device: Device = "cpu") -> MemoryPlan:
    """Returns the plan with the pages of `kv`. Weights are float32 in any stored format."""
    spec = context.spec
    table_bytes = _FLOAT_BYTES * spec.vocab_size * spec.hidden_size
    embedding_bytes = table_bytes if spec.has_own_output else 0
    step_floats = _step_floats(context, kv, device)
    load_bytes = max(table_bytes + embedding_bytes, _FLOAT_BYTES * _largest_layer(spec))
    if spec.encoder is not None:
        # Texts are encoded before the step begins.
        step_floats = max(step_floats, _encode_floats(spec.encoder))
        # The encoder is read with a table of its own, which is then dropped.
        load_bytes = max(load_bytes, 2 * table_bytes)
    return MemoryPlan(
        weight_bytes=_FLOAT_BYTES * spec.num_parameters() - embedding_bytes,
        embedding_bytes=embedding_bytes,
        kv_bytes=kv.num_pages * kv.page_bytes(spec),
        step_bytes=_FLOAT_BYTES * step_floats + _gpu_bytes(spec, device),
        load_bytes=load_bytes,
    )


def _gpu_bytes(spec: ModelSpec, device: Device) -> int:
    """Returns the bytes of each layer's inputs and outputs in a tile's graphs, and of the
    libraries."""
    if device == "cpu":
        return 0
    columns = sum(
        4 * spec.hidden_size + 3 * layer.attention.query_size + 4 * layer.attention.kv_size
        for layer in spec.layers
    )
    return _FLOAT_BYTES * TILE_FORMS[device].num_rows * columns + _LIBRARY_BYTES


def _largest_layer(spec: ModelSpec) -> int:
    """Returns the weights of the largest layer: it is in memory twice right after it is read."""
    shapes = (layer.linear_shapes(spec.hidden_size).values() for layer in spec.layer_counts)
    return max(sum(rows * columns for rows, columns in one) for one in shapes)


def _step_floats(context: Context, kv: KVSpec, device: Device) -> int:
    """Returns the floats of a step: the largest layer's rows, a page of queries with all keys it
    may see, the sight of each query page, the biases of relative positions, and logits."""
    spec = context.spec
    num_keys = min(context.max_request_tokens, kv.num_tokens)
    if device != "cpu":
        num_keys = padded(-(-num_keys // PAGE_SIZE)) * PAGE_SIZE
    rows = max(_row_floats(layer, spec.hidden_size) for layer in spec.layer_counts)
    seen = max(_query_page_floats(layer, num_keys) for layer in spec.layer_counts)
    windows = {layer.attention.window for layer in spec.layer_counts}
    # One byte for each place of a page and key, for as many pages as hold the step's tokens.
    sights = len(windows) * (PLANNED_STEP_TOKENS * num_keys // _FLOAT_BYTES)
    relative = 0 if spec.relative_shape is None else spec.relative_shape[1] * num_keys * num_keys
    return PLANNED_STEP_TOKENS * (rows + 2 * spec.vocab_size) + seen + sights + relative


def _encode_floats(encoder: ModelSpec) -> int:
    """Returns the floats of encoding one text of the greatest length: the rows of a layer, its
    scores and relative biases with their copies, and the buckets of all distances as integers."""
    num_tokens = encoder.max_positions
    rows = max(_row_floats(layer, encoder.hidden_size) for layer in encoder.layer_counts)
    num_heads = max(layer.attention.num_heads for layer in encoder.layer_counts)
    return num_tokens * (rows + num_tokens * (5 * num_heads + 16))


def _row_floats(layer: LayerSpec, hidden_size: int) -> int:
    """Returns the most floats per token while a layer is computed: its state before and after,
    queries, keys and values in two forms, and a tile's MLP."""
    attention = layer.attention
    heads = 2 * (attention.query_size + attention.kv_size) + attention.query_size
    if layer.cross is not None:
        heads += 3 * layer.cross.query_size
    mlp = layer.mlp.size if isinstance(layer.mlp, Mlp) else max(layer.mlp.size, _shared(layer))
    return 4 * hidden_size + 2 * heads + 3 * mlp


def _shared(layer: LayerSpec) -> int:
    experts = layer.experts
    return 0 if experts is None or experts.shared_size is None else experts.shared_size


def _query_page_floats(layer: LayerSpec, num_keys: int) -> int:
    """Returns the floats of a query page: three copies of its scores, and two of the keys and
    values that it reads."""
    attention = layer.attention
    seen = num_keys if attention.window is None else min(num_keys, attention.window + 2 * PAGE_SIZE)
    return seen * (3 * PAGE_SIZE * attention.num_heads + 4 * attention.kv_size)

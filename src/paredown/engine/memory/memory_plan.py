"""What running a checkpoint will take, added up before anything is loaded."""

from dataclasses import dataclass, replace
from itertools import chain

from paredown.engine.memory.kept_pages import KeptPages
from paredown.errors import CapacityError
from paredown.kernels.native_model import planned_step_bytes
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv import PAGE_SIZE, KVDTypes, KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.run_form import run_form, table_dtype
from paredown.spec.weight import DTYPES
from paredown.units import format_bytes

# Default page pool: full contexts it holds, and the share of free memory it may take.
_DEFAULT_CONTEXTS = 16
_DEFAULT_MEMORY_SHARE = 0.25
# Tokens of one step that working memory is planned for, each with its logits.
PLANNED_STEP_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes by use. `load_bytes` is the transient copy of the largest weight while it is packed.

    Packed weights that are mapped from a file count like others: a step reads them all, so the
    pages of the file must stay in memory, though the system may share and drop them.
    """

    weight_bytes: int
    embedding_bytes: int
    kv_bytes: int
    step_bytes: int
    load_bytes: int

    @property
    def total_bytes(self) -> int:
        return (
            self.weight_bytes
            + self.embedding_bytes
            + self.kv_bytes
            + self.step_bytes
            + self.load_bytes
        )

    def without_packing(self) -> "MemoryPlan":
        """The plan where the weights are packed already."""
        return replace(self, load_bytes=0)

    def arithmetic(self) -> str:
        """One line: the terms and their sum."""
        return (
            f"weights {format_bytes(self.weight_bytes)} + embedding "
            f"{format_bytes(self.embedding_bytes)} + KV pages {format_bytes(self.kv_bytes)} + "
            f"working memory {format_bytes(self.step_bytes)} + loading "
            f"{format_bytes(self.load_bytes)} = {format_bytes(self.total_bytes)}"
        )

    def check(self, available_bytes: int) -> None:
        """Raises CapacityError, with the arithmetic, when the plan exceeds `available_bytes`."""
        if self.total_bytes > available_bytes:
            raise CapacityError(
                "The model does not fit in memory",
                seen=f"{self.arithmetic()}; available {format_bytes(available_bytes)}",
                remedy="Compress it further (`paredown compress --recipe int4-g128`) or give "
                "less memory for KV pages (`paredown serve --kv-memory`).",
            )


def plan_memory(checkpoint: Checkpoint, kv: KVSpec, num_threads: int) -> MemoryPlan:
    """The plan for the native executor, from shapes and formats alone."""
    spec = checkpoint.spec
    linear_bytes = sum(_linear_bytes(checkpoint).values())
    by_layer = [spec.linear_shapes(layer).values() for layer in range(spec.num_layers)]
    shapes = [*chain(*by_layer), (spec.vocab_size, spec.hidden_size)]
    return MemoryPlan(
        weight_bytes=linear_bytes + _output_bytes(checkpoint),
        embedding_bytes=_embedding_bytes(checkpoint),
        kv_bytes=kv.num_pages * _page_bytes(spec, kv),
        step_bytes=_step_bytes(spec, kv, num_threads),
        load_bytes=4 * max(rows * columns for rows, columns in shapes),
    )


def default_num_pages(spec: ModelSpec, available_bytes: int, kv_dtype: KVDTypes = "bf16") -> int:
    """Pages for 16 full contexts, or what a quarter of the free memory holds, at least one
    context: what a request of that length holds."""
    pages_per_context = _request_pages(spec)
    page_bytes = _page_bytes(spec, KVSpec(num_pages=1, dtype=kv_dtype))
    affordable = int(available_bytes * _DEFAULT_MEMORY_SHARE) // page_bytes
    return max(pages_per_context, min(_DEFAULT_CONTEXTS * pages_per_context, affordable))


def pages_in(num_bytes: int, spec: ModelSpec, kv_dtype: KVDTypes) -> int:
    """Pages that `num_bytes` of memory hold. Raises CapacityError where that is none."""
    page_bytes = _page_bytes(spec, KVSpec(num_pages=1, dtype=kv_dtype))
    if num_bytes < page_bytes:
        raise CapacityError(
            "the memory for keys and values holds no page",
            seen=f"{format_bytes(num_bytes)}, a page takes {format_bytes(page_bytes)}",
            remedy="Give more (`--kv-memory`, `kv_cache_bytes`).",
        )
    return num_bytes // page_bytes


def page_arithmetic(spec: ModelSpec, kv: KVSpec) -> str:
    """One line: what a page takes, what all of them take and hold."""
    page_bytes = _page_bytes(spec, kv)
    return (
        f"KV pages: {kv.num_pages} of {PAGE_SIZE} tokens x {spec.num_layers} layers x "
        f"{spec.num_kv_heads} heads x (key + value) x {spec.head_dim} {kv.name(spec.num_layers)} = "
        f"{kv.num_pages} x {format_bytes(page_bytes)} = {format_bytes(kv.num_pages * page_bytes)}: "
        f"{kv.num_tokens:,} tokens, {_contexts(spec, kv)}"
    )


def _request_pages(spec: ModelSpec) -> int:
    """Of the longest request, in steps as large as working memory is planned for."""
    return KeptPages.of(spec).pages_of(spec.max_request_tokens, PLANNED_STEP_TOKENS)


def _contexts(spec: ModelSpec, kv: KVSpec) -> str:
    """How many of the longest requests the pages hold."""
    num_pages = _request_pages(spec)
    if num_pages * PAGE_SIZE >= spec.max_positions and spec.sinks is None:
        return f"{kv.num_tokens / spec.max_positions:.1f} contexts of {spec.max_positions:,}"
    sinks = f"{spec.num_sink_tokens} sinks + " if spec.sinks is not None else ""
    return (
        f"{kv.num_pages / num_pages:.1f} of the longest requests: {sinks}a window of "
        f"{spec.kept_window:,} + a step of {PLANNED_STEP_TOKENS} tokens are {num_pages} pages"
    )


def _page_bytes(spec: ModelSpec, kv: KVSpec) -> int:
    return kv.page_bytes(spec.num_layers, spec.num_kv_heads, spec.head_dim)


def _linear_bytes(checkpoint: Checkpoint) -> dict[str, int]:
    specs = checkpoint.weight_specs()
    sizes = {}
    for layer in range(checkpoint.spec.num_layers):
        for role, (rows, columns) in checkpoint.spec.linear_shapes(layer).items():
            name = checkpoint.linear_name(role, layer)
            bits = run_form(specs[name], columns).bits_per_weight(columns)
            sizes[f"{layer}.{role}"] = int(rows * columns * bits / 8)
        for role, (rows, columns) in checkpoint.spec.router_shapes(layer).items():
            sizes[f"{layer}.{role}"] = rows * columns * 4
    return sizes


def _output_bytes(checkpoint: Checkpoint) -> int:
    spec = checkpoint.spec
    names = checkpoint.names
    own = names.embedding if spec.tied_embeddings else names.output
    form = run_form(checkpoint.weight_specs()[own], spec.hidden_size)
    bits = form.bits_per_weight(spec.hidden_size)
    return int(spec.vocab_size * spec.hidden_size * bits / 8)


def _embedding_bytes(checkpoint: Checkpoint) -> int:
    """Nothing where it is tied to an output layer of floats: its rows are read from there. One that
    is quantized is held in fp16 (pack_weights)."""
    spec = checkpoint.spec
    stored = checkpoint.weight_specs()[checkpoint.names.embedding]
    if spec.tied_embeddings and not stored.is_quantized:
        return 0
    return spec.vocab_size * spec.hidden_size * DTYPES[table_dtype(stored)].bits // 8


def _step_bytes(spec: ModelSpec, kv: KVSpec, num_threads: int) -> int:
    """The core's buffers, as it adds them up itself, and the logits."""
    buffers = planned_step_bytes(spec, kv, num_threads, PLANNED_STEP_TOKENS)
    return buffers + PLANNED_STEP_TOKENS * spec.vocab_size * 4

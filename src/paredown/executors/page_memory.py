"""Sizes the memory for pages of keys and values, and tells how many requests they hold."""

from collections import Counter

from paredown.errors import CapacityError, ConfigError
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE, KVDTypes, KVSpec
from paredown.spec.kv_choice import resolve_kv_choice
from paredown.spec.model import ModelSpec
from paredown.units import format_bytes

# The default pool holds this many full contexts, within this share of the free memory.
_DEFAULT_CONTEXTS = 16
_DEFAULT_MEMORY_SHARE = 0.25
# Working memory is planned for steps of this many tokens, each with its logits.
PLANNED_STEP_TOKENS = 512


def planned_kv(
    checkpoint: Checkpoint, options: RunOptions, available_bytes: int, spec: ModelSpec | None = None
) -> KVSpec:
    """Returns the pages that `options` ask for, or without a number those that fit into a share of
    `available_bytes`. `spec` is the checkpoint's, or has heads as the executor pads them. Raises
    ConfigError and CapacityError."""
    spec = checkpoint.spec if spec is None else spec
    choice = checkpoint.kv_dtype if options.kv_dtype is None else options.kv_dtype
    dtypes = resolve_kv_choice(choice, spec.num_layers)
    num_pages = options.num_pages
    if options.kv_cache_bytes is not None:
        num_pages = pages_in(options.kv_cache_bytes, spec, dtypes)
    if num_pages is None:
        num_pages = default_num_pages(
            Context(spec=spec, sinks=options.sinks), available_bytes, dtypes
        )
    if not isinstance(num_pages, int) or isinstance(num_pages, bool) or num_pages < 1:
        raise ConfigError("there must be KV pages", seen=num_pages, remedy="Use 1 or more.")
    return KVSpec(num_pages=num_pages, dtype=dtypes)


def default_num_pages(context: Context, available_bytes: int, kv_dtype: KVDTypes = "bf16") -> int:
    """Returns the pages of 16 full contexts, or of a quarter of the free memory if that is less,
    but at least of one context."""
    pages_per_context = _request_pages(context)
    page_bytes = KVSpec(num_pages=1, dtype=kv_dtype).page_bytes(context.spec)
    affordable = int(available_bytes * _DEFAULT_MEMORY_SHARE) // page_bytes
    return max(pages_per_context, min(_DEFAULT_CONTEXTS * pages_per_context, affordable))


def pages_in(num_bytes: int, spec: ModelSpec, kv_dtype: KVDTypes) -> int:
    """Returns how many pages fit into `num_bytes`. Raises CapacityError if none does."""
    page_bytes = KVSpec(num_pages=1, dtype=kv_dtype).page_bytes(spec)
    if num_bytes < page_bytes:
        raise CapacityError(
            "the memory for keys and values holds no page",
            seen=f"{format_bytes(num_bytes)}, a page takes {format_bytes(page_bytes)}",
            remedy="Give more (--kv-memory of serve and bench, kv_cache_bytes of LLM).",
        )
    return num_bytes // page_bytes


def page_arithmetic(context: Context, kv: KVSpec) -> str:
    """Returns one line: the size of a page, and the size and contents of all pages."""
    spec = context.spec
    page_bytes = kv.page_bytes(spec)
    return (
        f"KV pages: {kv.num_pages} of {PAGE_SIZE} tokens x {_heads(spec)} "
        f"{kv.name(spec.num_layers)} = "
        f"{kv.num_pages} x {format_bytes(page_bytes)} = {format_bytes(kv.num_pages * page_bytes)}: "
        f"{kv.num_tokens:,} tokens, {_contexts(context, kv)}"
    )


def _heads(spec: ModelSpec) -> str:
    """Returns the arithmetic for people: 16 layers x 8 heads x (key + value) x 64; layers that
    differ are added up."""
    heads = Counter((one.attention.num_kv_heads, one.attention.head_dim) for one in spec.layers)
    terms = [
        f"{count} layers x {num_heads} heads x (key + value) x {head_dim}"
        for (num_heads, head_dim), count in heads.items()
    ]
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _request_pages(context: Context) -> int:
    """Returns the pages of the longest request, in steps as large as working memory is planned
    for."""
    return KeptPages.of(context).pages_of(context.max_request_tokens, PLANNED_STEP_TOKENS)


def _contexts(context: Context, kv: KVSpec) -> str:
    """Returns how many of the longest requests the pages hold."""
    num_pages, max_positions = _request_pages(context), context.spec.max_positions
    if num_pages * PAGE_SIZE >= max_positions and context.sinks is None:
        return f"{kv.num_tokens / max_positions:.1f} contexts of {max_positions:,}"
    sinks = f"{context.num_sink_tokens} sinks + " if context.sinks is not None else ""
    return (
        f"{kv.num_pages / num_pages:.1f} of the longest requests: {sinks}a window of "
        f"{context.kept_window:,} + a step of {PLANNED_STEP_TOKENS} tokens are {num_pages} pages"
    )

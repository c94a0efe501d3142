"""Chooses the format of an encoder's keys and values, which last as long as a layer runs."""

from dataclasses import replace

from paredown.errors import ConfigError
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv import KVSpec
from paredown.spec.kv_choice import resolve_kv_choice
from paredown.spec.run_form import run_form

_FORMATS = ("bf16", "fp32")


def encoder_options(options: RunOptions) -> RunOptions:
    """Returns the options for the encoder of an encoder-decoder, from those of both: pages are the
    decoder's."""
    kv_dtype = options.kv_dtype if options.kv_dtype in _FORMATS else None
    return replace(options, num_pages=None, kv_cache_bytes=None, kv_dtype=kv_dtype, sinks=None)


def encoder_kv(checkpoint: Checkpoint, options: RunOptions) -> KVSpec:
    """Returns the format that `options` ask for; without one fp32 where all weights and inputs are
    fp32, else bf16. There are no pages to keep. Raises ConfigError for a format below 16 bits, and
    for options of pages."""
    if options.num_pages is not None or options.kv_cache_bytes is not None:
        raise ConfigError(
            "an encoder keeps no keys and values",
            seen="a number of pages, or memory for them",
            remedy="Leave num_pages and kv_cache_bytes out.",
        )
    if options.sinks is not None:
        raise ConfigError(
            "attention sinks are for texts that are generated",
            seen="sinks for an encoder",
            remedy="Leave attention sinks out.",
        )
    if options.kv_dtype is None:
        return KVSpec(num_pages=0, dtype="fp32" if _is_exact(checkpoint, options) else "bf16")
    dtypes = set(
        KVSpec(
            num_pages=0, dtype=resolve_kv_choice(options.kv_dtype, checkpoint.spec.num_layers)
        ).layer_dtypes(checkpoint.spec.num_layers)
    )
    if len(dtypes) != 1 or not dtypes <= set(_FORMATS):
        raise ConfigError(
            "an encoder holds keys and values of all layers in one format of floats",
            seen=", ".join(sorted(dtypes)),
            remedy=f"Use {' or '.join(_FORMATS)}, or leave the format out.",
        )
    return KVSpec(num_pages=0, dtype=dtypes.pop())


def _is_exact(checkpoint: Checkpoint, options: RunOptions) -> bool:
    """Returns whether nothing is rounded below float32."""
    if options.activations not in (None, "fp32"):
        return False
    columns = checkpoint.spec.hidden_size
    forms = [run_form(one, columns) for one in checkpoint.weight_specs().values()]
    return all(
        form.kind == "fp32" and (options.activations or form.activations) == "fp32"
        for form in forms
    )

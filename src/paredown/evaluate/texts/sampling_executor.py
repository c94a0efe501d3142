"""The executor that writes a text where none was given."""

from paredown.engine.native.native_executor import NativeExecutor, load_executor
from paredown.engine.native.packed_cache import CacheConfig
from paredown.evaluate.texts.text import sampling_pages
from paredown.models.checkpoint import Checkpoint


def load_sampling_executor(
    checkpoint: Checkpoint, num_threads: int | None = None, cache: CacheConfig | None = None
) -> NativeExecutor:
    """Loads `checkpoint` with room for what `sample_text` runs side by side, and no more."""
    pages = sampling_pages(checkpoint.spec)
    return load_executor(checkpoint, num_pages=pages, num_threads=num_threads, cache=cache)

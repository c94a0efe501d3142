"""Loads the executor that samples a text where none was given."""

from paredown.evaluate.texts.text import sampling_pages
from paredown.executors.cache_config import CacheConfig
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint


def load_sampling_executor(
    checkpoint: Checkpoint, num_threads: int | None = None, cache: CacheConfig | None = None
) -> LoadedExecutor:
    """Loads `checkpoint` with just enough pages for the parallel texts of `sample_text`."""
    pages = sampling_pages(checkpoint.spec)
    return load_executor(
        checkpoint,
        RunOptions(num_pages=pages, threads=ThreadPlan.resolve(num_threads), cache=cache),
    )

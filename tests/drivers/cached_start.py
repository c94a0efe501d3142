"""Starts the native executor with packed weights on disk, in this process or another. It imports
nothing that only tests need."""

import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from paredown.executors.cache_config import CacheConfig
from paredown.executors.load import load_executor
from paredown.executors.native import packed_cache
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint

ALWAYS = CacheConfig(min_bytes=0)


def load(folder: Path, cache: CacheConfig | None = ALWAYS, **options: object) -> NativeExecutor:
    executor = load_executor(
        Checkpoint.open(folder),
        RunOptions(num_pages=8, threads=ThreadPlan.resolve(2), cache=cache, **options),
    )
    executor.wait_for_cache()
    return executor


def load_together(folder: Path, start: Barrier) -> None:
    """Loads when all others are ready."""
    start.wait()
    load(folder)


def write_and_hang(folder: Path) -> None:
    """Starts to write packed weights and never finishes."""
    packed_cache._ExitClock.go_on = lambda _: time.sleep(100) or True
    load(folder)

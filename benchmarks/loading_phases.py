"""One start of the engine, phase by phase, for benchmarks/loading.py: a process of its own that has
imported nothing yet.

    python -m benchmarks.loading_phases FOLDER NUM_THREADS
"""

import json
import sys
import time
from pathlib import Path

PROMPT = [1, 2, 3, 4]


def phases(folder: Path, num_threads: int) -> dict[str, float]:
    """Seconds of each; imports are inside, as they are what is measured."""
    times = {}
    start = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal start
        now = time.perf_counter()
        times[name] = now - start
        start = now

    from paredown.executors.cache_config import CacheConfig
    from paredown.executors.load import load_executor
    from paredown.executors.protocol import SequenceSlice
    from paredown.executors.run_options import RunOptions
    from paredown.kernels.thread_plan import ThreadPlan
    from paredown.models.checkpoint import Checkpoint
    from paredown.models.text.tokenizer import Tokenizer

    lap("import")
    checkpoint = Checkpoint.open(folder)
    lap("open")
    cache = CacheConfig.from_environment()
    executor = load_executor(
        checkpoint, RunOptions(num_pages=64, threads=ThreadPlan.resolve(num_threads), cache=cache)
    )
    lap("load")
    Tokenizer.open(folder)
    lap("tokenizer")
    executor.step([SequenceSlice(token_ids=PROMPT, start=0, pages=[0], num_logits=1)])
    lap("first_token")
    return times | {"huge_pages": huge_pages()}


def huge_pages() -> float:
    """The share of the mapped packed weights that the system maps in huge pages."""
    found: dict[str, int] = {}
    packed = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            packed = line.endswith(".packed")
        elif packed and name in ("Size:", "FilePmdMapped:"):
            found[name] = found.get(name, 0) + int(rest[0])
    return found.get("FilePmdMapped:", 0) / found.get("Size:", 1)


if __name__ == "__main__":
    print(json.dumps(phases(Path(sys.argv[1]), int(sys.argv[2]))))

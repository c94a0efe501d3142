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

    from paredown.engine.executor import SequenceSlice
    from paredown.engine.native_executor import load_executor
    from paredown.engine.packed_cache import CacheConfig
    from paredown.models.checkpoint import Checkpoint
    from paredown.models.tokenizer import Tokenizer

    lap("import")
    checkpoint = Checkpoint.open(folder)
    lap("open")
    cache = CacheConfig.from_environment()
    executor = load_executor(checkpoint, num_pages=64, num_threads=num_threads, cache=cache)
    lap("load")
    Tokenizer.open(folder)
    lap("tokenizer")
    executor.step([SequenceSlice(token_ids=PROMPT, start=0, pages=[0], num_logits=1)])
    lap("first_token")
    return times


if __name__ == "__main__":
    print(json.dumps(phases(Path(sys.argv[1]), int(sys.argv[2]))))

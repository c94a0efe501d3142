"""From the start of a process to the first token of a Q4_K_M file, and what it takes of memory."""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.checkpoints.cache import Variant, gguf_file
from benchmarks.first_token import llama_cpp_commands, paredown_commands, seconds_to_first_byte
from benchmarks.real.peak_memory import peak_anonymous_bytes
from benchmarks.real.row import Row, Section
from paredown.files.user_cache import VARIABLE

VARIANT = Variant(model="llama-3.2-1b", format="q4_k_m")
NUM_ROUNDS = 5
MAX_FIRST_RATIO = 1.2
MAX_LATER_RATIO = 1.0
MAX_MEMORY_RATIO = 1.15


def section(shapes_root: Path, num_threads: int) -> Section:
    path = gguf_file(shapes_root, VARIANT)
    (ours,) = paredown_commands(shapes_root, VARIANT, num_threads).values()
    theirs = llama_cpp_commands(shapes_root, VARIANT, num_threads)
    with tempfile.TemporaryDirectory(dir=shapes_root.parent) as folder:
        first, later, peers = _measure(ours, theirs, Path(folder))
        memory = _memory_bytes(ours, Path(folder))
    best = min(peers, key=lambda name: statistics.median(peers[name]))
    memory_ratio = memory / path.stat().st_size
    rows = [
        _row("first start", first, peers[best], MAX_FIRST_RATIO),
        _row("later starts", later, peers[best], MAX_LATER_RATIO),
        Row(
            name="anonymous memory of a later start and the packed file, over the GGUF file",
            asked=f"at most {MAX_MEMORY_RATIO}",
            found=f"{memory_ratio:.2f}",
            meets=memory_ratio <= MAX_MEMORY_RATIO,
        ),
    ]
    return Section(
        title="Loading the 1B shape in Q4_K_M",
        protocol=f"A fresh process to its first token, the file in the page cache, {num_threads} "
        f"threads, medians of {NUM_ROUNDS} rounds in turns; a first start has no packed weights on "
        f"disk. llama.cpp with {best}.",
        rows=rows,
    )


def _measure(
    ours: list[str], theirs: Mapping[str, list[str]], folder: Path
) -> tuple[list[float], list[float], dict[str, list[float]]]:
    """Seconds of our first and later starts, and of the peer's by its settings."""
    first, later = [], []
    peers: dict[str, list[float]] = {name: [] for name in theirs}
    for number in range(NUM_ROUNDS + 1):
        print(f"loading: round {number} of {NUM_ROUNDS}", file=sys.stderr, flush=True)
        with _cache_in(folder / str(number)):
            found = [seconds_to_first_byte(ours), seconds_to_first_byte(ours)]
        others = {name: seconds_to_first_byte(command) for name, command in theirs.items()}
        if number == 0:  # brings the files into the page cache
            continue
        first.append(found[0])
        later.append(found[1])
        for name, seconds in others.items():
            peers[name].append(seconds)
    return first, later, peers


def _memory_bytes(ours: list[str], folder: Path) -> int:
    """The most anonymous memory of a later start, keys and values in it, and the packed file that
    it maps."""
    with _cache_in(folder / "memory"):
        seconds_to_first_byte(ours)
        packed = sum(file.stat().st_size for file in (folder / "memory").rglob("*"))
        return packed + peak_anonymous_bytes(ours)


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """Packed weights are kept in `folder` by the processes that are started."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def _row(name: str, ours: list[float], theirs: list[float], most: float) -> Row:
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    ratio = statistics.median(ratios)
    return Row(
        name=name,
        asked=f"at most {most}x of llama.cpp's time",
        found=f"{statistics.median(ours):.2f} s beside {statistics.median(theirs):.2f} s: "
        f"{ratio:.2f}x ({min(ratios):.2f}..{max(ratios):.2f})",
        meets=ratio <= most,
    )

"""Loads a model with two builds in turn, in fresh processes, each with the driver of its own
commit."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.build import Build
from benchmarks.build_cases import LoadingCase
from benchmarks.peers.child import PeerError

# The driver: `python -m benchmarks.loading_phases FOLDER NUM_THREADS` prints seconds by phase.
DRIVER = "benchmarks.loading_phases"
CACHE_VARIABLE = "PAREDOWN_CACHE"
START_PHASES = ("import", "open", "load", "tokenizer", "first_token")
# An exiting process stops writing packed weights after a while, so another one must try again.
NUM_WARM_STARTS = 4
LOG_TAIL_CHARACTERS = 600


def loading_seconds(
    builds: Mapping[str, Build],
    case: LoadingCase,
    folder: Path,
    work: Path,
    *,
    num_threads: int,
    num_rounds: int,
) -> dict[str, list[float]]:
    """Returns each round's seconds by the build's name, after warm-up starts. The absolute folder
    `work` holds packed weights meanwhile. Raises PeerError where a build cannot load the model's
    folder or keeps no packed weights."""
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as caches:
        loaders = {}
        for name, build in builds.items():
            cache = "off" if case.task == "packing" else str(Path(caches, name))
            loaders[name] = _Loader(build, case, folder, cache, num_threads)
        for loader in loaders.values():
            loader.warm()
        seconds: dict[str, list[float]] = {name: [] for name in loaders}
        names = list(loaders)
        for number in range(num_rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                seconds[name].append(loaders[name].start())
        return seconds


class _Loader:
    def __init__(
        self, build: Build, case: LoadingCase, folder: Path, cache: str, num_threads: int
    ) -> None:
        self._build = build
        self._case = case
        self._cache = cache
        self._words = [str(folder), str(num_threads)]

    def warm(self) -> None:
        """Starts until files are in the page cache and the packed weights, if requested, are
        kept."""
        for _ in range(NUM_WARM_STARTS):
            self.start()
            if self._cache == "off" or list(Path(self._cache).glob("*.packed")):
                return
        raise PeerError(f"{self._case.name}: no start kept its packed weights")

    def start(self) -> float:
        """Returns the seconds that the case measures, in a new process."""
        done = subprocess.run(
            self._build.command(DRIVER, *self._words),
            cwd=self._build.tree,
            env=self._build.environment({CACHE_VARIABLE: self._cache}),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            tail = done.stderr.strip()[-LOG_TAIL_CHARACTERS:]
            raise PeerError(f"{self._case.name}: exit status {done.returncode}: {tail}")
        phases: dict[str, float] = json.loads(done.stdout)
        if self._case.task == "packing":
            return phases["load"]
        return sum(phases[phase] for phase in START_PHASES)

"""Runs a target on endless inputs and keeps each one that breaks a promise."""

import hashlib
import json
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paredown.errors import ParedownError
from tools.fuzz.mutate import Mutator
from tools.fuzz.target import Target

MAX_SECONDS = 2.0
MAX_MEMORY_MB = 1024
# The memory limit of the process, so that no input brings the machine down.
_LIMIT_MB = 6 * 1024
_MOST_FAILURES = 20


@dataclass(kw_only=True)
class Tally:
    """Counts of runs. `failures` are paths and what happened, one of each kind."""

    inputs: int = 0
    seconds: float = 0.0
    worst_s: float = 0.0
    worst_mb: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)


class Watch:
    """Watches one target in this process. Inputs are in `folder` while they run, so that the parent
    finds one that kills the process; failing ones are kept in `failures`."""

    def __init__(self, target: Target, folder: Path, failures: Path) -> None:
        self._target = target
        self._folder = folder
        self._failures = failures
        self._kinds = set[str]()
        self.tally = Tally()

    def run_for(self, seconds: float, corpus: Sequence[bytes], seed: int) -> None:
        """Runs the corpus unchanged, then mutations of it. An input that is refused in new words
        joins the corpus, because it reached other code."""
        mutator, known = Mutator(seed), list(corpus)
        words = {self.run(one) for one in known}
        start = time.monotonic()
        while time.monotonic() - start < seconds and len(self._kinds) < _MOST_FAILURES:
            data = mutator.changed(known, is_json=self._target.is_json)
            said = self.run(data)
            if said not in words and len(known) < 4000 and len(data) < 20_000:
                words.add(said)
                known.append(data)
        self.tally.seconds = time.monotonic() - start

    def run(self, data: bytes) -> str:
        """Runs one input and returns how it ended, without numbers. Processor time is measured, so
        that a busy machine causes no failures."""
        path = self._folder / self._target.file_name
        path.write_bytes(data)
        _forget_peak()
        before_mb, start = _peak_mb(), time.process_time()
        said = "accepted"
        try:
            self._target.run(path)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of a library is no Exception
            if isinstance(error, (ParedownError, *self._target.refusals)):
                said = _without_numbers(f"{type(error).__name__}: {error}")
            else:
                said = f"{type(error).__name__} at {_place(error)}"
                self._keep(said, data)
        spent_s, grown_mb = time.process_time() - start, _peak_mb() - before_mb
        if spent_s > MAX_SECONDS:
            self._keep(f"{spent_s:.1f} s", data, kind="time")
        if grown_mb > MAX_MEMORY_MB:
            self._keep(f"{grown_mb:.0f} MB", data, kind="memory")
        tally = self.tally
        tally.inputs += 1
        tally.worst_s = max(tally.worst_s, spent_s)
        tally.worst_mb = max(tally.worst_mb, grown_mb)
        return said

    def _keep(self, what: str, data: bytes, kind: str | None = None) -> None:
        kind = kind or what
        if kind in self._kinds:
            return
        self._kinds.add(kind)
        path = failing_path(self._failures, self._target.name, data)
        path.write_bytes(data)
        self.tally.failures[str(path)] = what


def failing_path(folder: Path, target: str, data: bytes) -> Path:
    return folder / f"{target}-{hashlib.sha256(data).hexdigest()[:16]}"


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_MB << 20, _LIMIT_MB << 20))
    sys.setrecursionlimit(1000)


def _forget_peak() -> None:
    """Sets the peak of this process to what it holds now (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "paredown" in frame.filename] or list(frames)
    return f"{Path(own[-1].filename).name}:{own[-1].name}" if own else "?"


def _without_numbers(text: str) -> str:
    what = text[:300].split("(saw:")[0]
    return "".join("#" if letter.isdigit() else letter for letter in what)


def printed(tally: Tally) -> str:
    """Returns the last line of a fuzzing process."""
    return json.dumps(vars(tally))

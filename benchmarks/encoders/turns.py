"""Engines in child processes, which are measured in turn."""

import contextlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.clock import Clock
from benchmarks.peers import Target
from benchmarks.peers.child import ChildPeer, PeerError

# A turn that is over in half of this is repeated for about so long; see benchmarks/rounds.py.
TURN_S = 0.3


class Turns:
    """Calls the engines; one that has failed is not called again, and `failures` has the reason."""

    def __init__(self, children: Mapping[str, ChildPeer], clock: Clock = "wall") -> None:
        self._children = children
        self._clock = clock
        self.failures: dict[str, str] = {}

    def call(self, name: str, method: str, *arguments: object) -> object:
        """Returns the method's result; None of an engine that fails."""
        if name in self.failures:
            return None
        try:
            return self._children[name].call(method, *arguments)
        except PeerError as error:
            self.failures[name] = str(error)
            return None

    def rounds(self, texts: list[str], num_rounds: int) -> dict[str, list[float]]:
        """Returns each engine's seconds for the texts, one for each round after a warm-up. The
        engine that begins a round changes."""
        names: Sequence[str] = list(self._children)
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for number in range(num_rounds + 1):
            first = number % len(names)
            for name in [*names[first:], *names[:first]]:
                elapsed = self._turn(name, texts)
                if elapsed is not None and number > 0:
                    seconds[name].append(elapsed)
        return {name: own for name, own in seconds.items() if name not in self.failures and own}

    def _turn(self, name: str, texts: list[str]) -> float | None:
        """Returns the seconds of one batch, the median of some where it is short."""
        first = self.call(name, "seconds", texts, 1, self._clock)
        if not isinstance(first, list):
            return None
        if first[0] > TURN_S / 2:
            return float(first[0])
        num_times = max(1, int(TURN_S / first[0]))
        again = self.call(name, "seconds", texts, num_times, self._clock)
        return statistics.median(again) if isinstance(again, list) else None


@contextlib.contextmanager
def children(targets: Mapping[str, Target], folder: Path) -> Iterator[dict[str, ChildPeer]]:
    """Starts an engine for each target, with a log in `folder`; stops them all at the end."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name, target in targets.items():
            found[name] = ChildPeer(target, folder / f"{name}.log")
            stack.callback(found[name].stop)
        yield found

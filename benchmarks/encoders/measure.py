"""Measures one case in rounds, everybody in turn."""

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.encoders.cases import EncoderCase
from benchmarks.encoders.peers import KIND_PEERS, OURS, PEERS, REFERENCE
from benchmarks.figures import Spread, rates, rival
from benchmarks.peers.child import ChildPeer, PeerError

# A turn that is over in half of this is repeated for about so long; see benchmarks/rounds.py.
TURN_S = 0.3
# The least cosine that an engine's vectors may have to the reference's, below which its speed says
# nothing.
MIN_COSINE = 0.9


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A case as measured. `ratio` is ours beside `best_peer`; `cosine` is our least one to the
    reference in fp32, `cosines` that of each engine."""

    case: EncoderCase
    texts_per_s: dict[str, Spread]
    best_peer: str | None
    ratio: Spread | None
    cosine: float
    cosines: dict[str, float]
    failures: dict[str, str]


def measure(
    case: EncoderCase,
    model: Path,
    *,
    names: Sequence[str],
    num_rounds: int,
    num_threads: int,
    folder: Path,
) -> Measured:
    """Measures ourselves and those of `names` that have the case's kind, after a warm-up."""
    texts = case.texts(model)
    asked = [OURS, *(name for name in names if name in KIND_PEERS[case.kind])]
    failures: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        turns = _Turns(
            {name: stack.enter_context(_child(name, folder)) for name in asked}, failures
        )
        for name in asked:
            turns.call(name, "load", str(model), case.kind, num_threads, str(folder))
        cosines = _cosines(
            turns, asked, texts, stack.enter_context(_child(REFERENCE, folder)), model
        )
        for name, cosine in cosines.items():
            if cosine < MIN_COSINE:
                failures[name] = f"its vectors are others: least cosine {cosine:.3f}"
        seconds: dict[str, list[float]] = {name: [] for name in asked}
        for number in range(num_rounds + 1):
            first = number % len(asked)
            for name in asked[first:] + asked[:first]:
                elapsed = turns.turn(name, texts)
                if elapsed is not None and number > 0:
                    seconds[name].append(elapsed)
    found = {
        name: rates(case.batch, own)
        for name, own in seconds.items()
        if name not in failures and own
    }
    ours = found.get(OURS, [])
    peers = {name: one for name, one in found.items() if name != OURS}
    rivalry = rival(ours, peers) if ours else None
    return Measured(
        case=case,
        texts_per_s={name: Spread.of(one) for name, one in found.items()},
        best_peer=None if rivalry is None else rivalry.best_peer,
        ratio=None if rivalry is None else rivalry.ratio,
        cosine=cosines.get(OURS, 0.0),
        cosines=cosines,
        failures=failures,
    )


class _Turns:
    """Calls the engines; one that has failed is not called again."""

    def __init__(self, children: dict[str, ChildPeer], failures: dict[str, str]) -> None:
        self._children = children
        self._failures = failures

    def call(self, name: str, method: str, *arguments: object) -> object:
        if name in self._failures:
            return None
        try:
            return self._children[name].call(method, *arguments)
        except PeerError as error:
            self._failures[name] = str(error)
            return None

    def turn(self, name: str, texts: list[str]) -> float | None:
        """Returns the seconds of one batch, the median of some where it is short."""
        first = self.call(name, "seconds", texts, 1)
        if not isinstance(first, list):
            return None
        if first[0] > TURN_S / 2:
            return float(first[0])
        again = self.call(name, "seconds", texts, max(1, int(TURN_S / first[0])))
        return statistics.median(again) if isinstance(again, list) else None


def _cosines(
    turns: _Turns, asked: Sequence[str], texts: list[str], reference: ChildPeer, model: Path
) -> dict[str, float]:
    """Returns each engine's least cosine to the reference."""
    reference.call("load", str(model), "fp32", 1, "")
    exact = np.asarray(reference.call("vectors", texts))
    found = {}
    for name in asked:
        vectors = turns.call(name, "vectors", texts)
        if vectors is not None:
            found[name] = least_cosine(exact, np.asarray(vectors))
    return found


def least_cosine(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    """Returns the least cosine of two vectors of the same row, [N, D]."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(1) / lengths).min())


@contextlib.contextmanager
def _child(name: str, folder: Path) -> Iterator[ChildPeer]:
    child = ChildPeer(PEERS[name], folder / f"{name}.log")
    try:
        yield child
    finally:
        child.stop()

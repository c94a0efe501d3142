"""Measures one case in rounds, everybody in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.clock import Clock
from benchmarks.encoders.cases import EncoderCase
from benchmarks.encoders.peers import KIND_PEERS, OURS, PEERS, REFERENCE
from benchmarks.encoders.turns import Turns, children
from benchmarks.figures import Spread, rates, rival

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
    clock: Clock = "wall",
) -> Measured:
    """Measures ourselves and those of `names` that have the case's kind, after a warm-up."""
    texts = case.texts(model)
    asked = [OURS, *(name for name in names if name in KIND_PEERS[case.kind])]
    with children({name: PEERS[name] for name in asked}, folder) as started:
        turns = Turns(started, clock)
        for name in asked:
            turns.call(name, "load", str(model), case.kind, num_threads, str(folder))
        cosines = _cosines(turns, asked, texts, model, folder)
        for name, cosine in cosines.items():
            if cosine < MIN_COSINE:
                turns.failures[name] = f"its vectors are others: least cosine {cosine:.3f}"
        seconds = turns.rounds(texts, num_rounds)
    found = {name: rates(case.batch, own) for name, own in seconds.items()}
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
        failures=turns.failures,
    )


def _cosines(
    turns: Turns, asked: Sequence[str], texts: list[str], model: Path, folder: Path
) -> dict[str, float]:
    """Returns each engine's least cosine to the reference in fp32."""
    with children({REFERENCE: PEERS[REFERENCE]}, folder / "reference") as started:
        reference = started[REFERENCE]
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

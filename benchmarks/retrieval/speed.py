"""Exact search beside the time that reading the index from memory takes, in alternating rounds.

Letters: D dimensions.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.kernels import _core
from paredown.kernels.isa import chosen_isa
from paredown.kernels.vector_search import VectorDType
from paredown.retrieve import DenseIndex, IndexConfig, TokenIndex

NUM_VECTORS = 1_000_000
NUM_DIMS = 384
# A ColBERT index, with sentences as long as MRPC's and its dimensions and those of ColBERT.
NUM_SENTENCES = 20_000
TOKENS = (12, 45)
TOKEN_DIMS = (384, 128)
QUERY_TOKENS = (8, 16, 32)
NUM_HITS = 10
SEARCHES = 5  # of a round
_BATCH = 10_000
_READ_MULTIPLE = 512

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class SpeedCase:
    """An index of random vectors, and the queries that are asked one after the other."""

    name: str
    dtype: VectorDType
    num_dims: int
    query_tokens: int = 0  # 0: an index of one vector a document

    @property
    def folder_name(self) -> str:
        kind = "tokens" if self.query_tokens else "dense"
        return f"{kind}-{self.dtype}-{self.num_dims}"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Medians over rounds, and the least and greatest ratio of a round."""

    case: SpeedCase
    num_bytes: int
    num_vectors: int
    search_s: float
    read_s: float
    products_s: float
    ratio: float
    ratio_least: float
    ratio_most: float


def cases(dtypes: tuple[VectorDType, ...]) -> list[SpeedCase]:
    found = [SpeedCase(name="a vector a text", dtype=one, num_dims=NUM_DIMS) for one in dtypes]
    for num_dims in TOKEN_DIMS:
        for number in QUERY_TOKENS:
            name = f"MaxSim, {number} tokens ask"
            found.append(SpeedCase(name=name, dtype="int8", num_dims=num_dims, query_tokens=number))
    return found


def build(case: SpeedCase, folder: Path, num_vectors: int, num_sentences: int) -> None:
    """Writes an index of normal vectors, unless it is there."""
    if folder.exists():
        return
    rng = np.random.default_rng(0)
    config = IndexConfig(dtype=case.dtype)
    if case.query_tokens:
        with TokenIndex.build(folder, config) as builder:
            for lengths in np.split(rng.integers(*TOKENS, num_sentences), num_sentences // 100):
                builder.add([_normal(rng, int(one), case.num_dims) for one in lengths])
        return
    with DenseIndex.build(folder, config) as builder:
        for first in range(0, num_vectors, _BATCH):
            builder.add(_normal(rng, min(_BATCH, num_vectors - first), case.num_dims))


def measure(case: SpeedCase, folder: Path, num_threads: int, num_rounds: int) -> Speed:
    """Alternates between searches and readings of as many bytes as the index has."""
    searches, num_bytes, num_vectors = _searches(case, folder, num_threads)
    num_read = num_bytes // _READ_MULTIPLE * _READ_MULTIPLE
    products = 2 * num_vectors * case.num_dims * max(1, case.query_tokens)
    search_s, read_s, products_s = [], [], []
    for _ in range(num_rounds + 1):
        taken = []
        for _ in range(SEARCHES):
            begin = time.perf_counter()
            next(searches)()
            taken.append(time.perf_counter() - begin)
        search_s.append(statistics.median(taken))
        rates = _core.measure_bandwidth(chosen_isa(), num_threads, num_read)
        read_s.append(num_bytes / statistics.median(rates))
        peaks = _core.measure_peak(chosen_isa(), num_threads, case.dtype)
        products_s.append(products / statistics.median(peaks))
    # The first round warms up.
    ratios = [own / read for own, read in zip(search_s[1:], read_s[1:], strict=True)]
    return Speed(
        case=case,
        num_bytes=num_bytes,
        num_vectors=num_vectors,
        search_s=statistics.median(search_s[1:]),
        read_s=statistics.median(read_s[1:]),
        products_s=statistics.median(products_s[1:]),
        ratio=statistics.median(ratios),
        ratio_least=min(ratios),
        ratio_most=max(ratios),
    )


def _searches(
    case: SpeedCase, folder: Path, num_threads: int
) -> tuple[Iterator[Callable[[], object]], int, int]:
    """Returns searches without end, each of another query, the index's bytes and its vectors."""
    rng = np.random.default_rng(1)
    if case.query_tokens:
        tokens = TokenIndex.open(folder, num_threads=num_threads)
        header, number = tokens.header, case.query_tokens

        def ask(query: Floats) -> Callable[[], object]:
            return lambda: tokens.search_maxsim([query], NUM_HITS)
    else:
        dense = DenseIndex.open(folder, num_threads=num_threads)
        header, number = dense.header, 1

        def ask(query: Floats) -> Callable[[], object]:
            return lambda: dense.search(query, NUM_HITS)

    def endless() -> Iterator[Callable[[], object]]:
        while True:
            yield ask(_normal(rng, number, case.num_dims))

    names = ("vectors.bin", "scales.bin")
    num_bytes = sum(header.files[name].num_bytes for name in names if name in header.files)
    return endless(), num_bytes, header.num_vectors


def _normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape, np.float32)

"""How well each score finds the paraphrase of a sentence among all others, by what vectors are kept
in.

BM25 is that of bm25s, with its defaults and English stop words. Dense vectors and MaxSim compare by
cosine, as the model was trained and as ColBERT does; COIL by dot product, without markers. A
sentence is not among the answers to itself.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import bm25s
import numpy as np

from benchmarks.retrieval.encoded import Encoded
from benchmarks.retrieval.paraphrases import Paraphrases
from paredown.evaluate.metrics.recall import recall_at
from paredown.evaluate.metrics.reciprocal_rank import mean_reciprocal_rank
from paredown.kernels.vector_search import VECTOR_DTYPES
from paredown.retrieve import CoilIndex, CoilText, DenseIndex, Hits, IndexConfig, TokenIndex

# For each dtype.
SCORES = ("dense", "MaxSim", "COIL")
# Of a ranking, the first so many count.
NUM_RANKED = 100

Found = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Shares from 0 to 1. `seconds` is the time of all searches."""

    score: str
    dtype: str
    recall_at_1: float
    recall_at_10: float
    reciprocal_rank: float
    seconds: float


def measure(task: Paraphrases, encoded: Encoded, folder: Path) -> Iterator[Quality]:
    """Yields a row for BM25, and for each score in each dtype; indexes are written to `folder`."""
    yield _judged("BM25", "", task, partial(by_bm25, task))
    texts = coil_texts(encoded)
    for dtype in VECTOR_DTYPES:
        config = IndexConfig(dtype=dtype)
        with DenseIndex.build(folder / "dense", config, overwrite=True) as builder:
            builder.add(encoded.texts)
        with TokenIndex.build(folder / "tokens", config, overwrite=True) as builder:
            builder.add(encoded.tokens)
        with CoilIndex.build(
            folder / "coil", replace(config, metric="dot"), overwrite=True
        ) as builder:
            builder.add(texts)
        dense, tokens = DenseIndex.open(folder / "dense"), TokenIndex.open(folder / "tokens")
        queries = encoded.texts[task.queries]
        yield _judged("dense", dtype, task, partial(_numbers, partial(dense.search, queries)))
        asked = [encoded.tokens[i] for i in task.queries]
        yield _judged(
            "MaxSim", dtype, task, partial(_numbers, partial(tokens.search_maxsim, asked))
        )
        lists = CoilIndex.open(folder / "coil")
        shared = [texts[i] for i in task.queries]
        yield _judged("COIL", dtype, task, partial(_numbers, partial(lists.search, shared)))


def by_bm25(task: Paraphrases) -> Found:
    """Ranks by words alone."""
    searcher = bm25s.BM25()
    searcher.index(
        bm25s.tokenize(list(task.sentences), stopwords="en", show_progress=False),
        show_progress=False,
    )
    asked = [task.sentences[i] for i in task.queries]
    words = bm25s.tokenize(asked, stopwords="en", show_progress=False)
    most = min(NUM_RANKED + 1, len(task.sentences))
    numbers, _ = searcher.retrieve(words, k=most, show_progress=False)
    return [[int(one) for one in row] for row in numbers]


def coil_texts(encoded: Encoded) -> list[CoilText]:
    """Returns the texts without markers."""
    texts = []
    for ids, vectors in zip(encoded.ids, encoded.tokens, strict=True):
        kept = ~np.isin(ids, [*encoded.markers])
        texts.append(CoilText(ids=ids[kept], vectors=vectors[kept]))
    return texts


def _numbers(search: Callable[[int], Hits]) -> Found:
    ranked: Found = search(NUM_RANKED + 1).numbers.tolist()
    return ranked


def _judged(score: str, dtype: str, task: Paraphrases, search: Callable[[], Found]) -> Quality:
    begin = time.perf_counter()
    found = search()
    seconds = time.perf_counter() - begin
    others = [
        [one for one in ranked if one != asks][:NUM_RANKED]
        for asks, ranked in zip(task.queries, found, strict=True)
    ]
    return Quality(
        score=score,
        dtype=dtype,
        recall_at_1=recall_at(others, task.relevant, 1),
        recall_at_10=recall_at(others, task.relevant, 10),
        reciprocal_rank=mean_reciprocal_rank(others, task.relevant),
        seconds=seconds,
    )

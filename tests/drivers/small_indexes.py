"""Builds small indexes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paredown.retrieve import CoilIndex, CoilText, DenseIndex, IndexConfig, TokenIndex


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def documents_of(rng: np.random.Generator, number: int, dims: int) -> list[np.ndarray]:
    return [normal(rng, int(length), dims) for length in rng.integers(1, 30, number)]


def build(kind: type, folder: Path, *batches: object, **strings: Sequence[Sequence[str]]) -> None:
    """With what is given of `ids` and `texts` for each batch."""
    with kind.build(folder) as builder:
        for i, batch in enumerate(batches):
            builder.add(batch, **{name: lists[i] for name, lists in strings.items() if lists[i]})


def dense(folder: Path, vectors: np.ndarray, **config: object) -> DenseIndex:
    with DenseIndex.build(folder, IndexConfig(**config)) as builder:
        builder.add(vectors)
    return DenseIndex.open(folder, num_threads=1)


def tokens(folder: Path, documents: Sequence[np.ndarray], **config: object) -> TokenIndex:
    with TokenIndex.build(folder, IndexConfig(**config)) as builder:
        builder.add(documents)
    return TokenIndex.open(folder, num_threads=1)


def coil_texts(
    rng: np.random.Generator, number: int, dims: int, *, cls_dims: int = 0, vocabulary: int = 12
) -> list[CoilText]:
    """Texts of 0 to 8 tokens, some of them twice."""
    texts = []
    for length in rng.integers(0, 9, number):
        texts.append(
            CoilText(
                ids=rng.integers(0, vocabulary, length),
                vectors=normal(rng, int(length), dims),
                cls=normal(rng, cls_dims) if cls_dims else None,
            )
        )
    return texts


def coil(folder: Path, texts: Sequence[CoilText], **config: object) -> CoilIndex:
    with CoilIndex.build(folder, IndexConfig(**{"metric": "dot", **config})) as builder:
        builder.add(texts)
    return CoilIndex.open(folder, num_threads=1)

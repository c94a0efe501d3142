"""Builds small indexes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paredown.retrieve import DenseIndex, IndexConfig, TokenIndex


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

"""Each score equals its paper's formula, whatever stands beside a text."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.retrieve import (
    CoilText,
    SparseVector,
    coil,
    coil_all,
    cosine,
    dot,
    maxsim,
    maxsim_all,
    real_tokens,
    splade,
    splade_all,
)
from references import retrieval as reference

seeds = st.integers(0, 2**32 - 1)


def sequences(rng: np.random.Generator, number: int, dims: int) -> list[np.ndarray]:
    lengths = rng.integers(1, 9, number)
    return [rng.normal(size=(length, dims)).astype(np.float32) for length in lengths]


@settings(deadline=None)
@given(seed=seeds)
def test_dense_scores_are_those_of_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(1, 40))
    queries, documents = rng.normal(size=(3, dims)), rng.normal(size=(5, dims))
    documents[2] = 0
    for score, plain in ((dot, reference.dot), (cosine, reference.cosine)):
        expected = [[plain(q, d) for d in documents] for q in queries]
        np.testing.assert_allclose(score(queries, documents), expected, rtol=1e-4, atol=1e-5)


@settings(deadline=None)
@given(seed=seeds)
def test_maxsim_is_that_of_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, documents = sequences(rng, 3, 7), sequences(rng, 6, 7)
    expected = [[reference.maxsim(q, d) for d in documents] for q in queries]
    np.testing.assert_allclose(maxsim_all(queries, documents), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(maxsim(queries[1], documents), expected[1], rtol=1e-4, atol=1e-4)


@settings(deadline=None)
@given(seed=seeds)
def test_coil_is_that_of_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = sequences(rng, 9, 5)
    ids = [rng.integers(0, 6, len(one)) for one in vectors]
    classes = rng.normal(size=(9, 3)).astype(np.float32)
    for with_cls in (False, True):
        texts = [
            CoilText(ids=i, vectors=v, cls=c if with_cls else None)
            for i, v, c in zip(ids, vectors, classes, strict=True)
        ]
        expected = [
            [
                reference.coil(
                    ids[q], vectors[q], ids[d], vectors[d], *(classes[[q, d]] if with_cls else ())
                )
                for d in range(3, 9)
            ]
            for q in range(3)
        ]
        found = coil_all(texts[:3], texts[3:])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(coil(texts[0], texts[3:]), found[0], rtol=1e-5, atol=1e-5)


@settings(deadline=None)
@given(seed=seeds)
def test_splade_is_that_of_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    texts = [
        {int(token): float(weight) for token, weight in enumerate(rng.random(12)) if weight > 0.5}
        for _ in range(8)
    ]
    vectors = [SparseVector(ids=[*one], weights=[*one.values()]) for one in texts]
    expected = [[reference.sparse_dot(q, d) for d in texts[2:]] for q in texts[:2]]
    np.testing.assert_allclose(splade_all(vectors[:2], vectors[2:]), expected, atol=1e-5)
    np.testing.assert_allclose(splade(vectors[0], vectors[2:]), expected[0], atol=1e-5)


def test_padding_never_wins() -> None:
    """All similarities are negative, and a zero vector would be the largest."""
    query = np.ones((3, 4), np.float32)
    padded = np.zeros((2, 7, 4), np.float32)
    padded[0, :1], padded[1, :] = -0.5, -1.0
    mask = np.array([[1] + [0] * 6, [1] * 7])
    documents = real_tokens(padded, mask)
    assert [len(one) for one in documents] == [1, 7]
    together = maxsim(query, documents)
    assert together.tolist() == [-6.0, -12.0]
    assert maxsim(query, documents[:1])[0] == together[0]


def test_query_slots_count_where_they_are_given() -> None:
    query, slots = np.eye(3, dtype=np.float32)[:2], np.ones((2, 3), np.float32)
    (short,), (long,) = (
        maxsim(one, [np.eye(3, dtype=np.float32)])
        for one in (query, np.concatenate([query, slots]))
    )
    assert (short, long) == (2.0, 4.0)


def test_a_token_that_only_one_text_has_counts_nothing() -> None:
    one = CoilText(ids=[5], vectors=[[1.0, 2.0]])
    other = CoilText(ids=[6], vectors=[[1.0, 2.0]])
    negative = CoilText(ids=[5], vectors=[[-1.0, 0.0]])
    assert coil(one, [other, negative]).tolist() == [0.0, -1.0]


def test_no_documents_or_queries_give_empty_scores() -> None:
    vector, text = np.ones((2, 3)), CoilText(ids=[1], vectors=[[1.0]])
    assert maxsim(vector, []).shape == coil(text, []).shape == (0,)
    assert maxsim_all([], [vector]).shape == coil_all([], [text]).shape == (0, 1)
    empty = SparseVector(ids=[], weights=[])
    assert splade(empty, [empty, SparseVector(ids=[1], weights=[2.0])]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: dot([[1.0, np.nan]], [[1.0, 1.0]]),
        lambda: dot([[1.0, np.inf]], [[1.0, 1.0]]),
        lambda: dot([[1e300]], [[1.0]]),
        lambda: dot([["a"]], [[1.0]]),
        lambda: dot([[1.0], [1.0, 2.0]], [[1.0]]),
        lambda: dot(np.ones((1, 2)), np.ones((1, 3))),
        lambda: cosine(np.ones((1, 2, 2)), np.ones((1, 2))),
        lambda: dot(np.ones((1, 0)), np.ones((1, 0))),
        lambda: maxsim(np.ones((2, 3)), [np.ones((0, 3))]),
        lambda: maxsim(np.ones((0, 3)), [np.ones((2, 3))]),
        lambda: maxsim(np.ones((2, 3)), [np.ones((2, 3)), np.ones((2, 4))]),
        lambda: maxsim(np.ones((2, 4)), [np.ones((2, 3))]),
        lambda: real_tokens(np.ones((2, 3, 4)), np.ones((3, 2))),
        lambda: CoilText(ids=[1, 2], vectors=[[1.0]]),
        lambda: CoilText(ids=[1.5], vectors=[[1.0]]),
        lambda: coil(
            CoilText(ids=[1], vectors=[[1.0]], cls=[1.0]), [CoilText(ids=[1], vectors=[[1.0]])]
        ),
        lambda: coil(CoilText(ids=[1], vectors=[[1.0]]), [CoilText(ids=[1], vectors=[[1.0, 2.0]])]),
        lambda: SparseVector(ids=[1, 1], weights=[1.0, 2.0]),
        lambda: SparseVector(ids=[-1], weights=[1.0]),
        lambda: SparseVector(ids=[1, 2], weights=[1.0]),
        lambda: SparseVector(ids=[1], weights=[np.nan]),
    ],
)
def test_what_cannot_be_compared_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=r"\(saw: .*\)\. [A-Z]"):
        call()

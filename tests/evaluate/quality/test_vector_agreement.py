"""Agreement of vectors: what it says of vectors that are alike, turned, scaled, and of labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.evaluate.quality.vector_agreement import (
    compare_vectors,
    cosines,
    similarities,
)


def vectors(seed: int, num: int = 12, size: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((num, size)).astype(np.float32)


def plain_cosine(one: np.ndarray, other: np.ndarray) -> float:
    dot = sum(float(a) * float(b) for a, b in zip(one, other, strict=True))
    lengths = [sum(float(a) ** 2 for a in vector) ** 0.5 for vector in (one, other)]
    return dot / (lengths[0] * lengths[1])


@given(st.integers(0, 100), st.floats(0.01, 100))
def test_length_does_not_count(seed: int, factor: float) -> None:
    found = compare_vectors(vectors(seed) * np.float32(factor), vectors(seed))
    assert found.cosine_mean == pytest.approx(1, abs=1e-6)
    assert found.cosine_least == pytest.approx(1, abs=1e-6)
    assert found.rank_agreement == pytest.approx(1, abs=1e-3)
    assert found.label_agreement is None


@given(st.integers(0, 100))
def test_cosines_are_those_of_a_plain_loop(seed: int) -> None:
    one, other = vectors(seed), vectors(seed + 1)
    expected = [plain_cosine(*pair) for pair in zip(one, other, strict=True)]
    np.testing.assert_allclose(cosines(one, other), expected, atol=1e-12)
    found = compare_vectors(one, other)
    assert found.cosine_mean == pytest.approx(np.mean(expected))
    assert found.cosine_least == pytest.approx(min(expected))
    pairs = [(i, j) for i in range(len(one)) for j in range(i + 1, len(one))]
    expected_pairs = [plain_cosine(one[i], one[j]) for i, j in pairs]
    np.testing.assert_allclose(similarities(one), expected_pairs, atol=1e-12)


def test_reversed_similarities_rank_the_other_way_round() -> None:
    # Angles 0, 1, 3 degrees apart, and the same pairs with the opposite order of nearness.
    near = np.array([[1, 0, 0], [1, 0.1, 0], [1, 0, 0.3]], np.float32)
    far = np.array([[1, 0, 0], [1, 0, 0.3], [1, 0.1, 0]], np.float32)
    assert compare_vectors(near, near).rank_agreement == pytest.approx(1)
    rank = compare_vectors(far, near).rank_agreement
    assert rank is not None
    assert rank < 1


def test_zero_vectors_agree_with_zero_vectors_alone() -> None:
    zeros, ones = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    assert cosines(zeros, zeros).tolist() == [1, 1]
    assert cosines(zeros, ones).tolist() == [0, 0]


def test_one_text_has_no_ranks() -> None:
    assert compare_vectors(vectors(0, num=1), vectors(0, num=1)).rank_agreement is None


def test_labels_agree_where_the_largest_is_the_same() -> None:
    expected = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 3], [4, 0, 0]], np.float32)
    found = np.array([[9, 8, 7], [0, 1, 2], [1, 2, 3], [1, 0, 0]], np.float32)
    agreement = compare_vectors(found, expected, are_labels=True)
    assert agreement.label_agreement == 0.75
    assert agreement.rank_agreement is None


def test_scores_are_compared_by_their_order() -> None:
    expected = np.array([[0.1], [0.5], [0.9]], np.float32)
    same = compare_vectors(expected * 3 - 1, expected, are_labels=True)
    assert same.rank_agreement == pytest.approx(1)
    turned = compare_vectors(-expected, expected, are_labels=True)
    assert turned.rank_agreement == pytest.approx(-1)
    assert turned.label_agreement is None

"""Accuracy, F1 and Matthews correlation are their formulas, also where a label is missing."""

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from paredown.evaluate.metrics.accuracy import accuracy
from paredown.evaluate.metrics.f1 import f1
from paredown.evaluate.metrics.matthews import matthews
from references import metrics as slow

PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30)
BINARY = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)


@given(PAIRS)
def test_each_metric_is_its_formula(pairs: list[tuple[int, int]]) -> None:
    predicted, expected = (list(side) for side in zip(*pairs, strict=True))
    one, other = np.array(predicted), np.array(expected)
    assert accuracy(one, other) == sum(a == b for a, b in pairs) / len(pairs)
    assert f1(one, other) == pytest.approx(slow.f1(predicted, expected, 1), abs=1e-12)
    assert matthews(one, other) == pytest.approx(slow.matthews(predicted, expected), abs=1e-12)


@given(BINARY)
def test_with_two_labels_matthews_is_that_of_the_table(pairs: list[tuple[int, int]]) -> None:
    predicted, expected = (list(side) for side in zip(*pairs, strict=True))
    tp, fp, fn, tn = slow.confusion(predicted, expected, 1)
    spread = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    plain = (tp * tn - fp * fn) / spread**0.5 if spread else 0.0
    assert matthews(np.array(predicted), np.array(expected)) == pytest.approx(plain, abs=1e-12)


def test_they_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    predicted, expected = random.integers(0, 2, (2, 500))
    assert accuracy(predicted, expected) == sklearn.metrics.accuracy_score(expected, predicted)
    assert f1(predicted, expected) == pytest.approx(sklearn.metrics.f1_score(expected, predicted))
    expected_mcc = sklearn.metrics.matthews_corrcoef(expected, predicted)
    assert matthews(predicted, expected) == pytest.approx(expected_mcc)


def test_the_other_label_has_an_f1_of_its_own() -> None:
    predicted, expected = np.array([0, 0, 1]), np.array([0, 1, 1])
    assert f1(predicted, expected, positive=0) == pytest.approx(2 / 3)
    assert f1(predicted, expected, positive=2) == 0.0


def test_answers_that_are_all_alike_have_no_correlation() -> None:
    assert matthews(np.ones(5, dtype=np.int64), np.array([0, 1, 1, 0, 1])) == 0.0
    assert matthews(np.array([0, 1, 1, 0, 1]), np.zeros(5, dtype=np.int64)) == 0.0


def test_many_answers_do_not_overflow() -> None:
    expected = np.arange(200_000, dtype=np.int32) % 2
    assert matthews(expected, expected) == pytest.approx(1.0)
    assert matthews(1 - expected, expected) == pytest.approx(-1.0)

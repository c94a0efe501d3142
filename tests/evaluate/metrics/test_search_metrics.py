"""Recall and reciprocal rank of searches are their formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.evaluate.metrics.recall import recall_at
from paredown.evaluate.metrics.reciprocal_rank import mean_reciprocal_rank
from references import metrics as slow

QUERIES = st.lists(
    st.tuples(
        st.permutations(range(8)).map(lambda order: order[:5]),
        st.sets(st.integers(0, 9), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=6,
)


@given(QUERIES, st.integers(1, 7))
def test_both_are_means_over_queries(
    queries: list[tuple[list[int], set[int]]], num_first: int
) -> None:
    found, relevant = ([*side] for side in zip(*queries, strict=True))
    recalls = [slow.recall_at(one, list(right), num_first) for one, right in queries]
    assert recall_at(found, relevant, num_first) == pytest.approx(sum(recalls) / len(recalls))
    ranks = [slow.reciprocal_rank(one, list(right)) for one, right in queries]
    assert mean_reciprocal_rank(found, relevant) == pytest.approx(sum(ranks) / len(ranks))
    near = [slow.reciprocal_rank(one[:num_first], list(right)) for one, right in queries]
    cut = mean_reciprocal_rank(found, relevant, num_first)
    assert cut == pytest.approx(sum(near) / len(near))


def test_a_result_that_is_found_twice_counts_once() -> None:
    assert recall_at([[3, 3, 3]], [[3, 4]], 3) == 0.5
    assert recall_at([[3]], [[3, 3]], 1) == 1.0


def test_nothing_found_is_zero() -> None:
    assert recall_at([[]], [[1]], 10) == 0.0
    assert mean_reciprocal_rank([[], [2]], [[1], [2]]) == 0.5

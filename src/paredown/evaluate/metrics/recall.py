"""Recall of a search: the share of what is relevant that is among its first results."""

from collections.abc import Collection, Sequence


def recall_at(
    found: Sequence[Sequence[int]], relevant: Sequence[Collection[int]], num_first: int
) -> float:
    """Returns the mean over queries, from 0 to 1. `found` has each query's results, the best first;
    `relevant` has at least one for each query."""
    assert num_first > 0
    assert found, "nothing was searched for"
    shares = [
        len(set(results[:num_first]) & set(right)) / len(set(right))
        for results, right in zip(found, relevant, strict=True)
    ]
    return sum(shares) / len(shares)

"""Mean reciprocal rank of a search (MRR): how far down the first relevant result stands."""

from collections.abc import Collection, Sequence


def mean_reciprocal_rank(
    found: Sequence[Sequence[int]],
    relevant: Sequence[Collection[int]],
    num_first: int | None = None,
) -> float:
    """Returns the mean over queries of 1 / rank, from 0 to 1. `found` has each query's results, the
    best first; a query without a relevant one among its first `num_first` counts as 0."""
    assert found, "nothing was searched for"
    assert num_first is None or num_first > 0
    total = 0.0
    for results, right in zip(found, relevant, strict=True):
        ranks = (rank for rank, one in enumerate(results[:num_first], 1) if one in right)
        first = next(ranks, None)
        total += 0.0 if first is None else 1 / first
    return total / len(found)

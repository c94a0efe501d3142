"""The largest share within a measured divergence."""

import pytest

from paredown.jobs.measured_divergence import MAX_TRIALS, NEAR, find_share


@pytest.mark.parametrize("power", [1, 2, 6])
@pytest.mark.parametrize("most_divergence", [0.003, 0.02, 0.4])
def test_it_is_near_below_the_limit(power: int, most_divergence: float) -> None:
    tried = []

    def measure(share: float) -> float:
        tried.append(share)
        return share**power

    exact = most_divergence ** (1 / power)
    least = 0.9 / 2 ** (MAX_TRIALS - 1)
    found = find_share(measure, most_divergence, 0.9)
    if exact < least:
        assert found.share is None
        return
    assert found.share is not None
    assert found.divergence == found.share**power
    assert found.share <= exact
    is_near = found.divergence >= NEAR * most_divergence
    assert is_near or exact - found.share <= least + 1e-5
    assert len(tried) <= MAX_TRIALS
    assert all(share == round(share, 5) for share in tried)


def test_the_largest_share_is_taken_where_it_loses_little() -> None:
    tried = []

    def measure(share: float) -> float:
        tried.append(share)
        return 0.01

    found = find_share(measure, 0.02, 0.9)
    assert (found.share, found.divergence, tried) == (0.9, 0.01, [0.9])


def test_nothing_is_taken_where_everything_loses_more() -> None:
    found = find_share(lambda share: 0.5, 0.02, 0.9)
    assert (found.share, found.divergence) == (None, None)

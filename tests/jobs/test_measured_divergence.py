"""The largest share within a measured divergence."""

import pytest

from paredown.jobs.measured_divergence import MAX_TRIALS, NEAR, find_share


@pytest.mark.parametrize("power", [1, 2, 6])
@pytest.mark.parametrize("max_kl", [0.003, 0.02, 0.4])
def test_it_is_near_below_the_limit(power: int, max_kl: float) -> None:
    tried = []

    def measure(share: float) -> float:
        tried.append(share)
        return share**power

    exact = max_kl ** (1 / power)
    least = 0.9 / 2 ** (MAX_TRIALS - 1)
    found = find_share(measure, max_kl, 0.9)
    if exact < least:
        assert found.share is None
        return
    assert found.share is not None
    assert found.kl_divergence == found.share**power
    assert found.share <= exact
    is_near = found.kl_divergence >= NEAR * max_kl
    assert is_near or exact - found.share <= least + 1e-5
    assert len(tried) <= MAX_TRIALS
    assert all(share == round(share, 5) for share in tried)


def test_the_largest_share_is_taken_where_it_loses_little() -> None:
    tried = []

    def measure(share: float) -> float:
        tried.append(share)
        return 0.01

    found = find_share(measure, 0.02, 0.9)
    assert (found.share, found.kl_divergence, tried) == (0.9, 0.01, [0.9])


def test_nothing_is_taken_where_everything_loses_more() -> None:
    found = find_share(lambda share: 0.5, 0.02, 0.9)
    assert (found.share, found.kl_divergence) == (None, None)

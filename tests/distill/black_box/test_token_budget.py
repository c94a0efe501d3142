"""The budget as a property: whatever is asked and settled, the limit holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.distill.black_box.token_budget import TokenBudget
from paredown.errors import ConfigError

STEPS = st.lists(st.tuples(st.integers(1, 60), st.floats(0, 1), st.booleans()), max_size=60)


@given(st.integers(1, 300), STEPS)
def test_no_more_is_spent_or_reserved_than_the_limit(limit, steps) -> None:
    budget = TokenBudget(limit)
    open_ones: list[tuple[int, int]] = []
    for wanted, share, settles in steps:
        if settles and open_ones:
            bound, reserved = open_ones.pop(0)
            budget.settle(bound, reserved, int(share * reserved))
        room = limit - budget.spent - budget.reserved
        reserved = budget.reserve(wanted)
        assert (reserved is None) == (wanted > room)
        if reserved is not None:
            open_ones.append((wanted, reserved))
        assert budget.spent + budget.reserved <= limit
        assert budget.reserved == sum(reserved for _, reserved in open_ones)


def test_later_questions_reserve_the_most_that_one_has_cost_beyond_its_bound() -> None:
    """However many cost more together, and whatever was reserved for them by then."""
    budget = TokenBudget(1000)
    for _ in range(3):
        assert budget.reserve(100) == 100
    for used in (130, 120, 130):
        budget.settle(100, 100, used)
    assert budget.reserve(50) == 80
    budget.settle(50, 80, 90)
    assert budget.reserve(100) == 140
    assert budget.spent == 470


def test_what_earlier_runs_have_spent_counts() -> None:
    assert TokenBudget(100, spent=60).reserve(41) is None
    assert TokenBudget(100, spent=60).reserve(40) == 40
    assert TokenBudget(100, spent=60, surplus=10).reserve(31) is None
    assert TokenBudget(100, spent=60, surplus=10).reserve(30) == 40
    assert TokenBudget(None, spent=10**12).reserve(10**12) == 10**12


@pytest.mark.parametrize("limit", [0, -5])
def test_a_budget_without_tokens_is_refused(limit) -> None:
    with pytest.raises(ConfigError, match="no tokens"):
        TokenBudget(limit)

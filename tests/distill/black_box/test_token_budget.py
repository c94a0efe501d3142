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
    open_ones: list[int] = []
    for wanted, share, settles in steps:
        if settles and open_ones:
            reserved = open_ones.pop(0)
            budget.settle(reserved, int(share * reserved))
        room = limit - budget.spent - budget.reserved
        reserved = budget.reserve(wanted)
        assert (reserved is None) == (wanted > room)
        if reserved is not None:
            open_ones.append(reserved)
        assert budget.spent + budget.reserved <= limit
        assert budget.reserved == sum(open_ones)


def test_a_question_that_cost_more_makes_later_ones_reserve_more() -> None:
    budget = TokenBudget(1000)
    assert budget.reserve(100) == 100
    budget.settle(100, 130)
    assert budget.reserve(100) == 130
    assert budget.spent == 130


def test_what_earlier_runs_have_spent_counts() -> None:
    assert TokenBudget(100, spent=60).reserve(41) is None
    assert TokenBudget(100, spent=60).reserve(40) == 40
    assert TokenBudget(None, spent=10**12).reserve(10**12) == 10**12


@pytest.mark.parametrize("limit", [0, -5])
def test_a_budget_without_tokens_is_refused(limit) -> None:
    with pytest.raises(ConfigError, match="no tokens"):
        TokenBudget(limit)

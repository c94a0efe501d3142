import pytest

from paredown.engine.schedule.scheduler import QueueFullError
from paredown.serve.intake.budget import Budget, Hold


def test_what_is_held_comes_back_in_any_case():
    budget = Budget(10, "things")

    def fail() -> None:
        with budget.hold() as held:
            held.add(6)
            held.add(4)
            assert budget.num_held == 10
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert budget.num_held == 0


def test_more_than_is_left_is_refused_and_nothing_is_taken():
    budget = Budget(10, "things")
    first, second = Hold(budget), Hold(budget)
    first.add(8)
    with pytest.raises(QueueFullError, match=r"things .*8 \+ 3 of 10"):
        second.add(3)
    second.add(2)
    first.release()
    first.release()
    assert budget.num_held == 2


def test_one_client_leaves_something_to_others():
    budget = Budget(10, "things", 4)
    first, second, third = (Hold(budget, client) for client in ("a", "a", "b"))
    first.add(3)
    with pytest.raises(QueueFullError, match="your requests"):
        second.add(2)
    second.add(1)
    third.add(4)
    for one in (first, first, second, third):
        one.release()
    assert budget.num_held == 0
    assert not budget.held_by

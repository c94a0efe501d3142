"""Turns: nobody is called twice or never, and a group of many does not hold up a group of one."""

import asyncio
import time

import pytest

from paredown.serve.doors import turns as turns_file
from paredown.serve.doors.turns import Turns


def run(calls: list[tuple[str, float]]) -> list[str]:
    """The groups in the order in which they were called; each call takes its seconds."""
    called = []

    async def main():
        turns, loop = Turns(), asyncio.get_running_loop()
        for group, seconds in calls:

            def call(group=group, seconds=seconds):
                called.append(group)
                time.sleep(seconds)

            turns.take(loop, group, call)
        while len(called) < len(calls):
            await asyncio.sleep(0)
        # Nothing is left over that could be called again.
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(main())
    return called


def test_what_the_round_has_time_for_is_called_at_once(monkeypatch):
    monkeypatch.setattr(turns_file, "BUDGET_S", 10.0)
    assert run([("a", 0.0), ("b", 0.0), ("a", 0.0)]) == ["a", "b", "a"]


def test_a_group_of_one_is_called_after_one_of_the_others():
    calls = [("many", 0.005)] * 20 + [("one", 0.0), ("two", 0.0)]
    called = run(calls)
    assert sorted(called) == sorted(group for group, _ in calls)
    # One is called at once, one has its turn before the others come.
    assert called.index("one") == 2
    assert called.index("two") == 3


def test_the_loop_goes_on_between_them():
    num_rounds = []

    async def main():
        turns, loop = Turns(), asyncio.get_running_loop()
        for _ in range(10):
            turns.take(loop, "a", lambda: (time.sleep(0.006), num_rounds.append(0)))
        for number in range(1, 30):
            num_rounds.append(number)
            await asyncio.sleep(0)

    asyncio.run(main())
    # Between two of them others ran.
    order = [number for number in num_rounds if number == 0 or number < 12]
    assert order[:6] == [0, 1, 0, 2, 0, 3]


def test_one_that_fails_leaves_the_others_their_turn():
    called, failures = [], []

    def fail():
        time.sleep(0.005)
        raise ValueError("a bug")

    async def main():
        turns, loop = Turns(), asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: failures.append(context["exception"]))
        turns.take(loop, "a", lambda: time.sleep(0.005))
        for call in (fail, lambda: called.append(1)):
            assert not turns.take(loop, "b", call)
        for _ in range(10):
            await asyncio.sleep(0)
        with pytest.raises(ValueError, match="a bug"):
            turns.take(loop, "b", fail)
        assert not turns.take(loop, "b", lambda: called.append(2))
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert called == [1, 2]
    assert len(failures) == 1

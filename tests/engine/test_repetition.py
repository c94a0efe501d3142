"""Plans that repeat: the driver compares each with what a look at every request would give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.scheduler_driver import SchedulerDriver
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.spec.kv import PAGE_SIZE


def decoding(num_pages=32, lengths=(3, 9, 20), max_tokens=40, **config):
    """Requests that decode, with a plan that repeats."""
    driver = SchedulerDriver(num_pages=num_pages, config=ScheduleConfig(**config))
    requests = [driver.submit([5 + i] * n, max_tokens) for i, n in enumerate(lengths)]
    for _ in range(3):
        driver.step()
    assert driver.num_repeated == 1
    return driver, requests


def is_repeated(driver):
    number = driver.num_repeated
    driver.step()
    return driver.num_repeated > number


def test_the_plan_repeats_over_the_borders_of_pages():
    driver, _ = decoding()
    assert all(is_repeated(driver) for _ in range(2 * PAGE_SIZE))
    driver.run_to_end()
    assert driver.num_repeated == 38


@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.integers(1, 40))
def test_every_request_gets_its_pages_in_time(lengths, max_tokens):
    driver = SchedulerDriver(num_pages=40, config=ScheduleConfig())
    requests = [driver.submit([5 + i] * n, max_tokens) for i, n in enumerate(lengths)]
    driver.run_to_end()
    assert [len(one.token_ids) for one in requests] == [n + max_tokens for n in lengths]
    assert driver.num_repeated == max(max_tokens - 2, 0)


def test_a_plan_asked_for_twice_is_the_same():
    driver, _ = decoding(lengths=(PAGE_SIZE - 3,))
    for _ in range(2 * PAGE_SIZE):
        chunks = [driver.scheduler.schedule().chunks for _ in range(3)]
        assert chunks[0] == chunks[1] == chunks[2]
        assert is_repeated(driver)


@pytest.mark.parametrize("what", ["submit", "cancel", "fork", "drafts"])
def test_another_plan_is_made_for(what):
    driver, (first, second, _) = decoding()
    if what == "submit":
        driver.submit([30] * 5, 40)
    elif what == "cancel":
        driver.cancel(second)
    elif what == "fork":
        driver.fork(first, 1)
    else:
        first.draft_token_ids = [1, 2]
        driver.scheduler.expect_drafts()
    repeated = [is_repeated(driver) for _ in range(3)]
    assert repeated == [False, what in ("cancel", "fork"), True]
    driver.run_to_end()


def test_another_plan_is_made_when_one_ends():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig())
    driver.submit([5] * 4, 6)
    driver.submit([6] * 4, 20)
    repeated = [is_repeated(driver) for _ in range(10)]
    assert repeated == [False] * 2 + [True] * 4 + [False] + [True] * 3


def test_whoever_finds_no_place_changes_no_plan():
    driver, _ = decoding(max_running=3)
    driver.submit([30] * 5, 4)
    assert all(is_repeated(driver) for _ in range(10))
    driver.run_to_end()
    assert len(driver.finished) == 4


def test_pages_that_are_missing_are_taken_from_another():
    driver = SchedulerDriver(num_pages=6, config=ScheduleConfig(prefix_cache=False))
    for i in range(3):
        driver.submit([5 + i] * 20, 30)
    driver.run_to_end()
    assert driver.scheduler.num_preemptions
    assert driver.num_repeated
    assert len(driver.finished) == 3


def test_with_fair_shares_no_plan_repeats():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig(fair_shares=True))
    driver.submit([5] * 4, 20)
    assert not any(is_repeated(driver) for _ in range(10))

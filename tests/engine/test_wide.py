"""Requests of many answers: what they leave to others, and what they have while they are alone."""

import pytest

from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import Scheduler
from paredown.engine.schedule.service import Service
from paredown.engine.schedule.wide import MIN_ROWS, PROMPT_TOKENS, SOON_ROWS, SOON_STEPS

NUM_PLACES = 16


class Driver:
    """A scheduler whose steps are taken as computed, each request drawing token 1."""

    def __init__(self, *, num_pages=4096, **config):
        config = {"max_running": NUM_PLACES, "prefix_cache": False} | config
        self.scheduler = Scheduler(
            num_pages=num_pages, max_positions=4096, config=ScheduleConfig(**config)
        )
        self.num_submitted = 0

    def submit(
        self, num_answers: int, *, num_tokens: int = 2000, num_prompt_tokens: int = 4
    ) -> list[Request]:
        service, found = Service(num_together=num_answers), []
        for _ in range(num_answers):
            self.num_submitted += 1
            request = Request(
                id=self.num_submitted,
                params=SamplingParams(),
                num_prompt_tokens=num_prompt_tokens,
                token_ids=[self.num_submitted] * num_prompt_tokens,
                max_total_tokens=num_prompt_tokens + num_tokens,
                service=service,
            )
            self.scheduler.submit(request)
            found.append(request)
        return found

    def step(self) -> list[Request]:
        """Who took part."""
        plan = self.scheduler.schedule()
        self.num_step_tokens = plan.num_tokens
        for request, num_tokens in plan.chunks:
            self.scheduler.advance(request, num_tokens)
            if request.num_computed_tokens == len(request.token_ids):
                request.token_ids.append(1)
            if request.num_tokens >= request.max_total_tokens:
                self.scheduler.finish(request, "length")
        self.scheduler.check_integrity()
        return [request for request, _ in plan.chunks]


@pytest.mark.parametrize("policy", ["first-come", "priority", "deadline", "longest-prefix"])
def test_some_places_are_for_others_and_who_comes_late_starts_at_once(policy):
    driver = Driver(policy=policy)
    driver.submit(128)
    driver.step()
    assert len(driver.scheduler.running) == NUM_PLACES * 3 // 4
    (late,) = driver.submit(1)
    assert late in driver.step()


def test_a_step_with_others_has_few_rows_of_theirs():
    driver = Driver()
    driver.submit(64)
    for _ in range(3):
        driver.step()
    (late,) = driver.submit(1)
    for _ in range(20):
        took_part = driver.step()
        assert late in took_part
        assert len(took_part) == 1 + MIN_ROWS
    others = driver.submit(1) + driver.submit(1) + driver.submit(1)
    assert set(others) < set(driver.step())
    assert len(driver.step()) == 4 + 4


def test_soon_after_others_left_a_step_is_short_and_later_all_have_their_rows():
    driver = Driver()
    driver.submit(NUM_PLACES)
    driver.submit(1, num_tokens=2)
    num_rows = [len(driver.step()) for _ in range(SOON_STEPS + 10)]
    assert num_rows[3:SOON_STEPS] == [SOON_ROWS] * (SOON_STEPS - 3)
    assert num_rows[-1] == NUM_PLACES * 3 // 4


def test_nobody_starves():
    driver = Driver()
    wide = driver.submit(40, num_tokens=5)
    others = [driver.submit(1, num_tokens=7)[0] for _ in range(10)]
    for number in range(2000):
        driver.step()
        if number % 8 == 0 and number < 400:
            others += driver.submit(1, num_tokens=7)
    assert all(one.finish_reason == "length" for one in (*wide, *others))


def test_alone_or_all_alike_nothing_changes():
    for num_answers in (1, 6):
        driver = Driver()
        for _ in range(2):
            driver.submit(num_answers)
        for _ in range(5):
            assert len(driver.step()) == 2 * num_answers


def test_few_places_are_not_parted():
    driver = Driver(max_running=3)
    driver.submit(8)
    assert len(driver.step()) == 3


def test_fair_shares_know_no_lanes():
    driver = Driver(fair_shares=True)
    driver.submit(NUM_PLACES)
    assert len(driver.step()) == NUM_PLACES


@pytest.mark.parametrize("policy", ["first-come", "priority", "deadline", "longest-prefix"])
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_long_prompts_of_theirs_hold_nobody_up(policy, prefix_cache):
    driver = Driver(num_pages=256, policy=policy, prefix_cache=prefix_cache)
    wide = driver.submit(64, num_tokens=5, num_prompt_tokens=1900)
    driver.step()
    for _ in range(20):
        (late,) = driver.submit(1, num_tokens=5)
        for _ in range(5):
            assert late in driver.step()
            assert driver.num_step_tokens <= 1 + 4 + PROMPT_TOKENS + SOON_ROWS
        assert late.finish_reason == "length"
    for _ in range(5000):
        driver.step()
    assert all(one.finish_reason == "length" for one in wide)


@pytest.mark.parametrize("policy", ["first-come", "longest-prefix"])
def test_pages_that_they_have_grown_into_are_given_up(policy):
    driver = Driver(num_pages=64, policy=policy)
    wide = driver.submit(16, num_tokens=900)
    for _ in range(200):
        driver.step()
    for _ in range(20):
        (late,) = driver.submit(1, num_tokens=5, num_prompt_tokens=100)
        for _ in range(5):
            assert late in driver.step()
    for _ in range(20_000):
        if all(one.finish_reason for one in wide):
            break
        driver.step()
    assert all(one.finish_reason == "length" for one in wide)

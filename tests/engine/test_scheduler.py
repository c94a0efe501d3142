"""The scheduler against the toy model, through random operations: whatever is shared, copied,
preempted, evicted, forked or drafted, every row of logits is that of its sequence alone."""

import numpy as np
import pytest
from hypothesis import settings

from drivers.scheduler_driver import VOCAB_SIZE, SchedulerDriver
from drivers.scheduler_machine import SchedulerMachine
from fakes.toy_executor import reference_logits
from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.service import Service
from paredown.errors import ConfigError

TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_a_repeated_prompt_computes_its_last_page_only():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig())
    cold = driver.submit([5] * 64)
    driver.run_to_end()
    warm = driver.submit([5] * 64)
    plan = driver.scheduler.schedule()
    assert [num_tokens for _, num_tokens in plan.chunks] == [16]
    assert (cold.num_cached_tokens, warm.num_cached_tokens) == (0, 48)
    stats = driver.scheduler.cache.stats
    assert (stats.num_queries, stats.num_hits) == (2, 1)
    assert (stats.num_queried_tokens, stats.num_hit_tokens) == (128, 48)


def test_other_salts_and_no_cache_find_nothing():
    for config, service in (
        (ScheduleConfig(), Service(cache_salt="other")),
        (ScheduleConfig(), Service(tenant="other")),
        (ScheduleConfig(prefix_cache=False), Service()),
    ):
        driver = SchedulerDriver(num_pages=32, config=config)
        driver.submit([5] * 64)
        driver.run_to_end()
        request = driver.submit([5] * 64, service=service)
        driver.step()
        assert request.num_cached_tokens == 0
    assert driver.scheduler.pool.num_idle == 0


def test_a_tenants_own_salt_cannot_be_named_by_another():
    assert Service(tenant="a").salt != Service(cache_salt="a").salt
    assert Service(tenant="a").salt != Service(tenant="b", cache_salt="a").salt
    assert Service(cache_salt="x").salt == Service(tenant="b", cache_salt="x").salt


def test_a_preempted_request_finds_its_own_pages_again():
    driver = SchedulerDriver(num_pages=12, config=ScheduleConfig())
    request = driver.submit([5] * 60, 20)
    driver.step()
    driver.step()
    plan = driver.scheduler.schedule()
    driver.scheduler._preempt(request, plan)
    assert (request.num_computed_tokens, plan.chunks) == (0, [])
    chunks = driver.scheduler.schedule().chunks
    assert chunks == [(request, 62 - 48)]
    assert request.num_cached_tokens == 0


def test_the_same_prompt_asked_twice_at_once_is_computed_once():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig(max_step_tokens=16))
    first, second = driver.submit([5] * 40, 8), driver.submit([5] * 40, 8)
    other = driver.submit([6] * 40, 8)
    assert [driver.step() for _ in range(3)] == [[first], [first], [first, second]]
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 32)
    assert first.pages[:2] == second.pages[:2]
    assert first.pages[2] != second.pages[2]
    driver.run_to_end()
    assert other.finish_reason == "length"


def test_what_a_running_request_is_about_to_compute_is_waited_for():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig())
    first, second = driver.submit([5] * 40, 8), driver.submit([5] * 40, 8)
    assert driver.step() == [first], "though the step had room for both"
    assert driver.scheduler.schedule().chunks == [(first, 1), (second, 8)]
    assert second.num_cached_tokens == 32


def test_a_request_that_fits_starts_once_a_larger_one_before_it_is_gone():
    driver = SchedulerDriver(num_pages=4, config=ScheduleConfig())
    running = driver.submit([5] * 20, 10)
    driver.step()
    large, small = driver.submit([6] * 40, 2), driver.submit([7] * 10, 2)
    assert driver.step() == [running]
    driver.cancel(large)
    assert driver.step() == [running, small]


def test_a_request_that_fits_starts_when_it_is_put_before_a_larger_one():
    config = ScheduleConfig(policy="priority")
    driver = SchedulerDriver(num_pages=4, config=config)
    running = driver.submit([5] * 20, 10, Service(priority=10))
    driver.step()
    driver.submit([6] * 40, 2)
    assert driver.step() == [running]
    small = driver.submit([7] * 10, 2, Service(priority=5))
    assert driver.step() == [running, small]


def test_drafts_of_a_preempted_request_are_dropped():
    driver = SchedulerDriver(num_pages=12, config=ScheduleConfig())
    request = driver.submit([5] * 20, 20)
    driver.step()
    request.draft_token_ids = [1, 2, 3]
    driver.scheduler.expect_drafts()
    driver.scheduler._preempt(request, driver.scheduler.schedule())
    assert not request.draft_token_ids
    driver.run_to_end()


def test_whoever_waits_for_a_prefix_computes_it_when_the_other_is_gone():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig(max_step_tokens=16))
    first, second = driver.submit([5] * 60, 8), driver.submit([5] * 60, 8)
    driver.step()
    driver.cancel(first)
    assert driver.step() == [second]
    assert second.num_cached_tokens == 16
    driver.run_to_end()


def test_the_same_page_computed_twice_is_kept_once():
    """A prompt that is to be scored finds nothing in the cache, since all its rows are wanted."""
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig())
    first, second = driver.submit([5] * 40, 8), driver.submit([5] * 40, 8)
    second.params = SamplingParams(prompt_logprobs=0)
    driver.step()
    driver.step()
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 0)
    driver.run_to_end()
    assert driver.scheduler.cache.num_cached_pages == 2


def test_forks_share_pages_until_they_write():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig())
    parent = driver.submit([5] * 40, 8)
    driver.step()
    children = [driver.fork(parent, token_id) for token_id in (1, 2)]
    assert driver.scheduler.pool.num_free == 32 - 3
    plan = driver.scheduler.schedule()
    shared = children[0].pages[:2]
    assert [one.pages[:2] for one in (parent, *children)] == [shared] * 3
    assert len({one.pages[2] for one in (parent, *children)}) == 3
    # The last to write finds itself alone.
    assert [target for _, target in plan.page_copies] == [parent.pages[2], children[0].pages[2]]
    assert driver.scheduler.pool.num_free == 32 - 5


def test_a_fork_without_a_place_waits_and_finds_the_full_pages():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig(max_running=1))
    parent = driver.submit([5] * 40, 4)
    driver.step()
    child = driver.fork(parent, 9)
    assert list(driver.scheduler.waiting) == [child]
    driver.run_to_end()
    assert child.num_cached_tokens == 32


def test_drafts_that_are_right_are_taken_over():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig())
    one = driver.submit([5] * 14, 30)
    driver.step()
    tokens = list(one.token_ids)
    for _ in range(20):
        likeliest = np.argmax(reference_logits(tokens, VOCAB_SIZE))
        tokens.append(int(likeliest + one.id) % VOCAB_SIZE)
    one.draft_token_ids = tokens[15:]
    driver.scheduler.expect_drafts()
    driver.step()
    assert one.token_ids[: len(tokens)] == tokens
    assert one.num_tokens == len(tokens) + 1
    assert one.num_computed_tokens == len(tokens)
    driver.run_to_end()


def test_pages_of_generated_tokens_are_found_when_their_request_has_ended():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig())
    one = driver.submit([5] * 20, 30)
    driver.run_to_end()
    again = driver.submit(one.token_ids)
    driver.run_to_end()
    assert again.num_cached_tokens == 48


def test_pages_of_a_running_request_are_found_as_soon_as_they_are_full():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig(max_step_tokens=40))
    one = driver.submit([5] * 64, 30)
    driver.step()
    assert one.num_computed_tokens == 40
    assert driver.scheduler.cache.num_cached_pages == 0, "nobody has asked for them"
    short, long = driver.submit([5] * 20), driver.submit([5] * 64 + [6] * 10)
    assert driver.step() == [one, short]
    assert short.num_cached_tokens == 16
    assert driver.step() == [one, short, long]
    assert long.num_cached_tokens == 64
    driver.run_to_end()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant", None),
        ("tenant", "x" * 1025),
        ("cache_salt", 5),
        ("cache_salt", "x" * 1025),
        ("priority", 11),
        ("priority", -11),
        ("priority", 1.0),
        ("priority", True),
        ("deadline_s", 0),
        ("deadline_s", float("nan")),
        ("deadline_s", float("inf")),
        ("deadline_s", 3601),
        ("deadline_s", True),
        ("deadline_s", "1"),
    ],
)
def test_a_senseless_service_is_refused(field, value):
    with pytest.raises(ParameterError, match=field) as caught:
        Service(**{field: value})
    assert caught.value.field == field


def test_a_policy_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="first-come, priority, deadline, longest-prefix"):
        ScheduleConfig(policy="lifo")

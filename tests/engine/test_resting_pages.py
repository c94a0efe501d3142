"""What ended requests have computed rests in the pool until somebody asks for it: it is found, it
goes from its end, and nothing of it is left behind when it is gone."""

from hypothesis import given
from hypothesis import strategies as st

from drivers.scheduler_driver import SchedulerDriver
from paredown.engine.memory.pages import PagePool
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig


def make(num_pages: int = 16) -> SchedulerDriver:
    return SchedulerDriver(num_pages=num_pages, config=ScheduleConfig())


def run(driver: SchedulerDriver, token_ids: list[int], num_new: int = 1, **fields):
    request = driver.submit(token_ids, num_new)
    if fields:
        request.params = SamplingParams(**fields)
    driver.run_to_end()
    driver.scheduler.check_integrity()
    return request


def test_nothing_is_put_into_the_cache_before_it_is_asked_for():
    driver = make()
    run(driver, [5] * 40)
    cache, pool = driver.scheduler.cache, driver.scheduler.pool
    assert (cache.num_cached_pages, pool.num_idle) == (0, 2)
    run(driver, [6] * 40)
    assert (cache.num_cached_pages, pool.num_idle) == (0, 4), "another prompt asks for other pages"
    assert run(driver, [5] * 40).num_cached_tokens == 32
    assert cache.num_cached_pages == 2


def test_an_answer_rests_behind_the_prefix_that_was_found():
    driver = make()
    run(driver, [5] * 40)
    second = run(driver, [5] * 40, 30)
    assert second.num_cached_tokens == 32
    assert (driver.scheduler.cache.num_cached_pages, driver.scheduler.pool.num_idle) == (2, 4)
    third = run(driver, second.token_ids)
    assert third.num_cached_tokens == 64
    # The pages of others are another's answer.
    assert run(driver, [5] * 32 + [6] * 30).num_cached_tokens == 32


def test_of_a_long_run_the_end_goes_first_and_the_rest_is_found():
    driver = make()
    run(driver, [5] * 80)
    pool = driver.scheduler.pool
    assert pool.num_idle == 5
    taken = pool.allocate(11 + 3)
    assert pool.num_idle == 2
    assert driver.scheduler.cache.stats.num_evictions == 3
    pool.release(taken)
    assert run(driver, [5] * 80).num_cached_tokens == 32


def test_nothing_is_left_of_a_run_that_is_evicted():
    driver = make(num_pages=8)
    for token_id in range(5, 11):
        run(driver, [token_id] * 90)
    pages = driver.scheduler._pages
    assert driver.scheduler.cache.stats.num_evictions > 0
    assert 1 <= len(pages._resting) == len(pages._filled_by) <= 2
    taken = pages.pool.allocate(8)
    assert not pages._resting
    assert not pages._filled_by
    pages.pool.release(taken)
    assert run(driver, [5] * 90).num_cached_tokens == 0


def test_what_others_have_too_does_not_rest():
    """A prompt that is to be scored computes all of it, as another does here at the same time."""
    driver = make()
    other, scored = driver.submit([5] * 40, 8), driver.submit([5] * 40, 1)
    scored.params = SamplingParams(prompt_logprobs=0)
    driver.run_to_end()
    driver.scheduler.check_integrity()
    assert (other.num_cached_tokens, scored.num_cached_tokens) == (0, 0)
    pool, cache = driver.scheduler.pool, driver.scheduler.cache
    assert (pool.num_idle, cache.num_cached_pages) == (2, 2)


def test_without_a_cache_nothing_rests():
    driver = SchedulerDriver(num_pages=16, config=ScheduleConfig(prefix_cache=False))
    run(driver, [5] * 40)
    assert driver.scheduler.pool.num_idle == 0


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(1, 40))
def test_resting_pages_are_evicted_as_released_ones_are(lengths, num_taken):
    """Whether pages rest at once or are kept and released last to first, they go in one order."""
    orders = []
    for rests in (True, False):
        evicted: list[int] = []

        def note(_, pages, evicted=evicted):
            evicted += pages
            return ()

        pool = PagePool(48, on_evict=note)
        for length in lengths:
            pages = pool.allocate(length)
            if rests:
                number = pool.rest(pages)
                assert pool.idle_run(number) == pages
            else:
                pool.keep(pages)
                pool.release(reversed(pages))
        assert pool.num_free == 48
        idle = pool.idle_pages()
        assert pool.allocate(num_taken) is not None
        assert evicted == idle[: len(evicted)]
        pool.check_integrity()
        orders.append((idle, evicted))
    assert orders[0] == orders[1]

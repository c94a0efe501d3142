"""Pages behind the windows of all layers are given back, whatever else happens to a request."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.scheduler_driver import SPEC, SchedulerDriver
from drivers.scheduler_machine import SchedulerMachine
from fakes.specs import changed, context_of
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.errors import CapacityError, RequestError
from paredown.spec.attention_sinks import MAX_STREAMED_TOKENS, AttentionSinks
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE


def sinking(num_sink_tokens: int, window: int):
    sinks = AttentionSinks(num_sink_tokens=num_sink_tokens, window=window)
    return Context(spec=SPEC, sinks=sinks)


def sliding(window: int):
    return changed(SPEC, sliding_window=window)


class WindowMachine(SchedulerMachine):
    SPECS = (sliding(2), sliding(17), sliding(33), sinking(4, 20), sinking(17, 2), sinking(1, 60))


TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


@given(
    num_sinks=st.integers(0, 40),
    window=st.integers(1, 70),
    num_computed=st.integers(0, 300),
    step=st.integers(1, 90),
)
def test_what_is_kept_is_what_later_tokens_see(num_sinks, window, num_computed, step):
    kept = KeptPages(num_sink_tokens=num_sinks, window=window)
    later = range(num_computed, num_computed + step)
    seen = {j for p in later for j in range(p + 1) if j < num_sinks or j > p - window}
    pages = {j // PAGE_SIZE for j in seen} | set(range(kept.num_sink_pages))
    gone = kept.num_released(num_computed)
    behind = range(kept.num_sink_pages, kept.num_sink_pages + gone)
    assert not pages & set(behind)
    assert pages == set(range(max(pages) + 1)) - set(behind)
    assert len(pages) <= kept.most_pages(step)


@pytest.mark.parametrize("window", [2, 16, 50])
def test_the_bound_on_pages_is_met_and_no_more(window):
    kept = KeptPages(num_sink_tokens=4, window=window)
    most = 0
    for computed in range(200):
        end = -(-(computed + 8) // PAGE_SIZE)
        most = max(most, end - kept.num_released(computed))
    assert most == kept.most_pages(8)


def test_a_layer_that_sees_all_keeps_all():
    assert KeptPages.of(context_of(changed(SPEC, num_layers=2, sliding_window=5))).window == 5
    mixed = changed(SPEC, num_layers=2, sliding_window=5, full_layers=(1,))
    kept = KeptPages.of(context_of(mixed))
    assert kept == KeptPages()
    assert (kept.num_released(10_000), kept.most_pages(1), kept.pages_of(33, 1)) == (0, None, 3)


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("spec", [sinking(4, 28), replace(sliding(32), max_positions=100_000)])
def test_a_long_text_holds_few_pages_to_its_end(spec, prefix_cache):
    config = ScheduleConfig(max_step_tokens=16, prefix_cache=prefix_cache)
    driver = SchedulerDriver(num_pages=10, config=config, spec=spec)
    request = driver.submit([5, 9] * 700, 100)
    most = 0
    while driver.alive:
        driver.step()
        driver.scheduler.check_integrity()
        most = max(most, len(request.pages))
    assert most == KeptPages.of(context_of(spec)).most_pages(16) <= 5
    assert request.num_tokens == 1500
    assert driver.scheduler.num_preemptions == 0


def test_many_texts_longer_than_all_pages_are_computed_side_by_side():
    config = ScheduleConfig(max_step_tokens=16, max_running=3)
    driver = SchedulerDriver(num_pages=9, config=config, spec=sinking(4, 20))
    requests = [driver.submit([i, 3] * 150, 40) for i in range(5)]
    driver.run_to_end()
    assert [one.num_tokens for one in requests] == [340] * 5


def test_pages_that_do_not_hold_a_window_end_a_text():
    driver = SchedulerDriver(num_pages=4, config=ScheduleConfig(), spec=sinking(4, 60))
    scheduler = driver.scheduler
    assert scheduler.max_tokens_per_request == 64
    with pytest.raises(CapacityError, match="key-value pages"):
        scheduler.limits.check_prompt(64)
    request = driver.submit([5] * 60, 100)
    driver.run_to_end()
    assert request.num_tokens == 64


def test_a_window_does_not_lengthen_the_context_but_sinks_do():
    driver = SchedulerDriver(num_pages=64, config=ScheduleConfig(), spec=sliding(20))
    with pytest.raises(RequestError, match="context"):
        driver.scheduler.limits.check_prompt(SPEC.max_positions)
    driver = SchedulerDriver(num_pages=64, config=ScheduleConfig(), spec=sinking(4, 20))
    driver.scheduler.limits.check_prompt(100 * SPEC.max_positions)
    assert driver.scheduler.max_tokens_per_request == MAX_STREAMED_TOKENS


def test_a_prefix_is_found_though_its_first_pages_have_no_holder():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig(), spec=sinking(4, 20))
    driver.submit([5] * 200)
    driver.run_to_end()
    warm = driver.submit([5] * 200)
    plan = driver.scheduler.schedule()
    assert plan.chunks == [(warm, 200 - 192)]
    assert warm.num_cached_tokens == 192
    assert len(warm.pages) == 4, "of the sinks, two of the window, the one to be computed"


def test_of_a_chain_that_lost_its_beginning_nothing_is_kept():
    config = ScheduleConfig(max_step_tokens=16)
    driver = SchedulerDriver(num_pages=8, config=config, spec=sliding(20))
    request = driver.submit([5] * 90, 5)
    while request.num_computed_tokens < 64:
        driver.step()
    pool, cache = driver.scheduler.pool, driver.scheduler.cache
    assert pool.num_idle > 0
    num_taken = pool.num_free
    taken = pool.allocate(num_taken)
    assert cache.num_cached_pages == 0, "what is left of it could not be found"
    pool.release(taken)
    driver.run_to_end()
    assert pool.num_idle == 0
    assert cache.stats.num_evictions >= 3

"""The scheduler against the toy model, through random operations: whatever is shared, copied,
preempted, evicted, forked or drafted, every row of logits is that of its sequence alone."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.policies.table import POLICY_NAMES
from paredown.engine.schedule.scheduler import ScheduleConfig
from paredown.engine.schedule.service import Service
from paredown.errors import ConfigError
from paredown.spec.kv import PAGE_SIZE
from scheduler_driver import VOCAB_SIZE, SchedulerDriver
from toy_executor import reference_logits

# Prompts are the beginning of one of these and an end of their own.
PREFIXES = [[7] * 80, [9, 8] * 40, list(range(60)) + [1] * 20]


SERVICES = st.builds(
    Service,
    tenant=st.sampled_from(["", "a", "b"]),
    priority=st.sampled_from([-10, 0, 3]),
    deadline_s=st.sampled_from([None, 0.5, 90.0]),
    cache_salt=st.sampled_from([None, "s"]),
)
CONFIGS = st.builds(
    ScheduleConfig,
    max_step_tokens=st.sampled_from([1, 5, 16, 64, 512]),
    max_running=st.sampled_from([1, 2, 8]),
    max_waiting=st.just(1000),
    policy=st.sampled_from(POLICY_NAMES),
    fair_shares=st.booleans(),
    prefix_cache=st.sampled_from([True, True, False]),
)


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(num_pages=st.integers(4, 14), config=CONFIGS)
    def start(self, num_pages, config):
        self.driver = SchedulerDriver(num_pages=num_pages, config=config)
        # Every prefix that was computed, by salt: nothing else may be found in the cache.
        self.computed: set[tuple[str, tuple[int, ...]]] = set()

    @property
    def scheduler(self):
        return self.driver.scheduler

    @rule(
        prefix=st.sampled_from(PREFIXES),
        num_shared=st.integers(0, 50),
        own=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=6),
        max_tokens=st.integers(1, 30),
        service=SERVICES,
        wait_s=st.sampled_from([0.0, 0.1, 20.0]),
    )
    def submit(self, prefix, num_shared, own, max_tokens, service, wait_s):
        self.driver.now_s += wait_s
        self.driver.submit(prefix[:num_shared] + own or [3], max_tokens, service)

    @rule(number=st.integers(1, 6))
    def step(self, number):
        for _ in range(number):
            self.note()
            self.driver.step()
            self.scheduler.check_integrity()

    @precondition(lambda self: self.driver.alive)
    @rule(number=st.integers(0, 50))
    def cancel(self, number):
        alive = list(self.driver.alive.values())
        self.driver.cancel(alive[number % len(alive)])

    @precondition(lambda self: self.forkable)
    @rule(number=st.integers(0, 50), token_id=st.integers(0, VOCAB_SIZE - 1))
    def fork(self, number, token_id):
        self.note()
        parents = self.forkable
        self.driver.fork(parents[number % len(parents)], token_id)

    @precondition(lambda self: self.scheduler.running)
    @rule(number=st.integers(0, 50), is_right=st.booleans(), length=st.integers(1, 20))
    def draft(self, number, is_right, length):
        running = self.scheduler.running
        one = running[number % len(running)]
        one.draft_token_ids, tokens = [], list(one.token_ids)
        for _ in range(min(length, one.max_total_tokens - one.num_tokens - 1)):
            guess = int(np.argmax(reference_logits(tokens, VOCAB_SIZE)) + one.id) % VOCAB_SIZE
            tokens.append(guess if is_right else 0)
            one.draft_token_ids.append(tokens[-1])

    @property
    def forkable(self):
        return [one for one in self.scheduler.running if one.num_computed_tokens]

    def note(self):
        for one in self.driver.alive.values():
            for end in range(PAGE_SIZE, len(one.token_ids) + 1, PAGE_SIZE):
                self.computed.add((one.service.salt, tuple(one.token_ids[:end])))

    @invariant()
    def nothing_is_broken(self):
        if not hasattr(self, "driver"):
            return
        self.scheduler.check_integrity()
        pool, cache = self.scheduler.pool, self.scheduler.cache
        # A chain is given up from its end.
        idle = {cache.node(page): place for place, page in enumerate(pool._idle)}
        for page in pool._idle:
            parent = cache._keys[page][0]
            assert parent not in idle or idle[cache.node(page)] < idle[parent]

    @invariant()
    def only_what_was_computed_under_the_same_salt_is_found(self):
        if not hasattr(self, "driver"):
            return
        self.note()
        for one in self.scheduler.running:
            assert one.num_cached_tokens < one.num_tokens
            num_whole = one.num_cached_tokens // PAGE_SIZE * PAGE_SIZE
            prefix = tuple(one.token_ids[:num_whole])
            assert not prefix or (one.service.salt, prefix) in self.computed

    def teardown(self):
        if hasattr(self, "driver"):
            self.driver.run_to_end()
            assert self.scheduler.pool.num_free == self.scheduler.pool.num_pages


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_a_repeated_prompt_computes_its_last_page_only():
    driver = SchedulerDriver(num_pages=32, config=ScheduleConfig())
    cold = driver.submit([5] * 64)
    driver.run_to_end()
    warm = driver.submit([5] * 64)
    plan = driver.scheduler.schedule()
    assert [chunk.num_tokens for chunk in plan.chunks] == [16]
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
    assert [(one.request, one.num_tokens) for one in chunks] == [(request, 62 - 48)]
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
    assert [chunk.num_tokens for chunk in driver.scheduler.schedule().chunks] == [1, 8]
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
    driver.scheduler._preempt(request, driver.scheduler.schedule())
    assert request.draft_token_ids == []
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
    assert first.pages[:2] == second.pages[:2]
    assert driver.scheduler.pool.num_free == 32 - 4


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
    driver.step()
    assert one.token_ids[: len(tokens)] == tokens
    assert one.num_tokens == len(tokens) + 1
    assert one.num_sealed_pages == 2
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

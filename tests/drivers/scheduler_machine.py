"""Random operations on the scheduler over the toy model, for models with and without windows."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drivers.scheduler_driver import SPEC, VOCAB_SIZE, SchedulerDriver
from paredown.engine.schedule.policies.table import POLICY_NAMES
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.service import Service
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec

# Each prompt begins with part of one of these and has its own end.
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
    SPECS: tuple[ModelSpec, ...] = (SPEC,)

    @initialize(num_pages=st.integers(4, 14), config=CONFIGS, number=st.integers(0, 9))
    def start(self, num_pages, config, number):
        spec = self.SPECS[number % len(self.SPECS)]
        self.driver = SchedulerDriver(num_pages=num_pages, config=config, spec=spec)
        # Every computed prefix, by salt; nothing else may be found in the cache.
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
        num_followers=st.sampled_from([0, 0, 1, 4]),
        keeps_pages=st.booleans(),
    )
    def submit(
        self, prefix, num_shared, own, max_tokens, service, wait_s, num_followers, keeps_pages
    ):
        self.driver.now_s += wait_s
        token_ids = prefix[:num_shared] + own or [3]
        request = self.driver.submit(token_ids, max_tokens, service, num_followers)
        request.keeps_pages = keeps_pages

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

    @precondition(lambda self: self.scheduler.parked)
    @rule(number=st.integers(0, 50))
    def drop(self, number):
        parked = self.scheduler.parked
        self.scheduler.drop(parked[number % len(parked)])

    @precondition(lambda self: self.scheduler.running)
    @rule(number=st.integers(0, 50), is_right=st.booleans(), length=st.integers(1, 20))
    def draft(self, number, is_right, length):
        running = self.scheduler.running
        one = running[number % len(running)]
        self.scheduler.expect_drafts()
        one.draft_token_ids, tokens = [], list(one.token_ids)
        for _ in range(min(length, one.max_total_tokens - one.num_tokens - 1)):
            draft = int(np.argmax(self.driver.expected(tokens)) + one.id) % VOCAB_SIZE
            tokens.append(draft if is_right else 0)
            one.draft_token_ids.append(tokens[-1])

    @property
    def forkable(self):
        """Returns the requests that have not ended by using up their last token."""
        known = [*self.scheduler.running, *self.scheduler.parked]
        most = self.scheduler.max_tokens_per_request
        return [one for one in known if 0 < one.num_computed_tokens < most - 1]

    def note(self):
        for one in self.driver.alive.values():
            for end in range(PAGE_SIZE, len(one.token_ids) + 1, PAGE_SIZE):
                self.computed.add((one.service.salt, tuple(one.token_ids[:end])))

    @invariant()
    def nothing_is_broken(self):
        if not hasattr(self, "driver"):
            return
        self.scheduler.check_integrity()
        if self.driver.executor.context.kept_window is not None:
            return
        # A chain is evicted from its end.
        idle = {page: place for place, page in enumerate(self.scheduler.pool.idle_pages())}
        for page in idle:
            *before, _ = self.scheduler._pages.chain(page)
            assert all(idle[page] < idle.get(one, 1 << 30) for one in before)

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
            for one in tuple(self.scheduler.parked):
                self.scheduler.drop(one)
            assert self.scheduler.pool.num_free == self.scheduler.pool.num_pages

"""The promises of each policy: who goes first, and how long nobody has to wait for others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.scheduler_driver import SchedulerDriver
from paredown.engine.request import Request
from paredown.engine.schedule.policies.deadline import DEFAULT_DEADLINE_S
from paredown.engine.schedule.policies.fair_shares import GENERATED_WEIGHT
from paredown.engine.schedule.policies.longest_prefix import FULL_MATCH_S
from paredown.engine.schedule.policies.priority import LEVEL_S
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.service import MAX_PRIORITY, Service
from paredown.spec.kv import PAGE_SIZE


def make(policy="first-come", *, num_pages=64, max_running=1, **options):
    config = ScheduleConfig(policy=policy, max_running=max_running, max_waiting=5000, **options)
    return SchedulerDriver(num_pages=num_pages, config=config)


def names_in_order_of_start(driver, names):
    """The driver runs to its end; which request was first computed when."""
    order = []
    while driver.alive:
        for request in driver.step():
            if names[request.id] not in order:
                order.append(names[request.id])
    return order


def started(driver, arrivals):
    """`arrivals`: (name, seconds, service, prompt), all there before the first step."""
    names = {}
    for name, arrival_s, service, prompt in arrivals:
        driver.now_s = arrival_s
        names[driver.submit(prompt, 2, service).id] = name
    return "".join(names_in_order_of_start(driver, names))


def test_first_come_first_served():
    services = [Service(), Service(priority=10, deadline_s=1), Service()]
    arrivals = [(name, 0.0, one, [3]) for name, one in zip("abc", services, strict=True)]
    assert started(make(), arrivals) == "abc"


def test_priority_against_age():
    arrivals = [
        ("a", 0.0, Service(priority=-1), [3]),
        ("b", 1.0, Service(), [3]),
        ("c", 2.0, Service(priority=1), [3]),
        ("d", 2 * LEVEL_S + 3, Service(priority=1), [3]),
    ]
    assert started(make("priority"), arrivals) == "cbad"


def test_the_earliest_deadline_goes_first():
    arrivals = [
        ("a", 0.0, Service(), [3]),
        ("b", 1.0, Service(deadline_s=100), [3]),
        ("c", 2.0, Service(deadline_s=5), [3]),
        ("d", DEFAULT_DEADLINE_S, Service(deadline_s=1), [3]),
    ]
    assert started(make("deadline"), arrivals) == "cadb"


def test_the_longest_cached_prefix_goes_first():
    driver = make("longest-prefix")
    driver.submit([5] * 64)
    driver.run_to_end()
    arrivals = [
        ("a", 0.0, Service(), [6] * 64),
        ("b", 1.0, Service(), [5] * 32 + [6] * 32),
        ("c", 2.0, Service(), [5] * 64),
        ("d", 3.0, Service(cache_salt="other"), [5] * 64),
        ("e", FULL_MATCH_S, Service(), [5] * 64),
    ]
    assert started(driver, arrivals) == "cbaed"


def test_a_prefix_that_a_running_request_has_computed_counts():
    driver = make("longest-prefix")
    running = driver.submit([5] * 64, 9)
    driver.step()
    other, alike = driver.submit([6] * 64), driver.submit([5] * 64)
    assert driver.scheduler.waiting.first() is alike
    driver.run_to_end()
    assert (running.num_cached_tokens, alike.num_cached_tokens, other.num_cached_tokens) == (
        0,
        48,
        0,
    )


def test_a_prefix_that_was_evicted_while_its_request_waited_counts_no_more():
    driver = make("longest-prefix", num_pages=6)
    driver.submit([5] * 48)
    driver.run_to_end()
    running = driver.submit([4] * 30, 3)
    driver.step()
    driver.now_s = 1.0
    other = driver.submit([6] * 48)
    driver.now_s = 2.0
    cached = driver.submit([5] * 48)
    assert driver.scheduler.waiting.first() is cached
    pages = driver.scheduler.pool.allocate(driver.scheduler.pool.num_free)
    driver.scheduler.pool.release(pages)
    assert driver.scheduler.waiting.first() is other
    driver.run_to_end()
    assert driver.finished[1:] == [running, other, cached]


@pytest.mark.parametrize(
    ("policy", "urgent"),
    [("priority", Service(priority=5)), ("deadline", Service(deadline_s=2))],
)
def test_an_urgent_request_takes_the_place_of_a_running_one(policy, urgent):
    for max_running, num_pages in ((1, 64), (8, 5)):
        driver = make(policy, max_running=max_running, num_pages=num_pages)
        slow = driver.submit([3] * 40, 20)
        driver.step()
        fast = driver.submit([4] * 40, 2, urgent)
        assert driver.step() == [fast]
        assert (slow.num_preemptions, len(slow.pages)) == (1, 0)
        driver.run_to_end()
        assert driver.finished == [fast, slow]


@pytest.mark.parametrize("max_step_tokens", [1, 4, 16])
def test_an_urgent_request_takes_the_place_of_one_where_decodes_fill_the_step(max_step_tokens):
    driver = make("priority", max_running=64, max_step_tokens=max_step_tokens)
    slow = [driver.submit([3], 60, Service(priority=-10)) for _ in range(2 * max_step_tokens)]
    for _ in range(max_step_tokens):
        driver.step()
    fast = driver.submit([4, 5], 2, Service(priority=10))
    assert fast in driver.step()
    driver.step()
    driver.step()
    assert driver.finished == [fast]
    driver.run_to_end()
    assert [one.num_preemptions for one in slow].count(1) == 1


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    urgent=st.integers(0, 12),
    max_step_tokens=st.integers(1, 8),
    max_running=st.integers(1, 64),
    policy=st.sampled_from(["first-come", "priority"]),
)
def test_who_runs_gets_a_token_of_every_step(lengths, urgent, max_step_tokens, max_running, policy):
    driver = make(policy, max_running=max_running, max_step_tokens=max_step_tokens)
    for number, length in enumerate(lengths):
        driver.submit([number] * length, 9, Service(priority=3 if number >= urgent else 0))
        for _ in range(3):
            before = set(driver.scheduler.running)
            computed = driver.step()
            gone = {one for one in before if one.num_preemptions}
            assert before - gone <= set(computed)
            assert len(driver.scheduler.running) <= min(max_running, max_step_tokens)
    driver.run_to_end()


def test_nobody_is_preempted_for_a_request_that_would_not_fit_even_then():
    driver = make("priority", max_running=8, num_pages=6)
    first = driver.submit([3] * 40, 30, Service(priority=10))
    second = driver.submit([4] * 30, 2)
    driver.step()
    driver.submit([5] * 70, 2, Service(priority=5))
    assert driver.step() == [first, second]
    assert second.num_preemptions == 0


def bound_s(policy: str, request: Request) -> float:
    """Only requests that arrive less than this after it may overtake it
    (docs/internals/engine.md)."""
    return {
        "first-come": 0.0,
        "priority": (MAX_PRIORITY - request.service.priority) * LEVEL_S,
        "deadline": request.service.deadline_s or DEFAULT_DEADLINE_S,
        "longest-prefix": FULL_MATCH_S,
    }[policy]


# Seconds are sums of powers of two: who arrives just at a bound is not moved by rounding.
ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.25, 4.0, 30.0]),  # seconds after the one before
        st.integers(1, 60),  # tokens of the prompt
        st.builds(
            Service,
            priority=st.integers(-MAX_PRIORITY, MAX_PRIORITY),
            deadline_s=st.sampled_from([None, 0.125, 10.0, 300.0]),
        ),
        st.integers(0, 3),  # steps before the next arrival
    ),
    min_size=2,
    max_size=25,
)


@pytest.mark.parametrize("policy", ["first-come", "priority", "deadline", "longest-prefix"])
@settings(max_examples=60, deadline=None)
@given(arrivals=ARRIVALS, max_running=st.integers(1, 4), num_pages=st.integers(4, 12))
def test_nobody_is_overtaken_by_those_who_come_after_the_bound(
    policy, arrivals, max_running, num_pages
):
    driver = make(policy, max_running=max_running, num_pages=num_pages)

    def step():
        waiting = list(driver.scheduler.waiting)
        before = set(waiting)
        driver.step()
        still = [one for one in waiting if one in set(driver.scheduler.waiting)]
        for starter in before - set(still):
            for one in still:
                assert starter.arrival_s < one.arrival_s + bound_s(policy, one) or (
                    (starter.arrival_s, starter.id) < (one.arrival_s, one.id)
                )

    for gap_s, length, service, num_steps in arrivals:
        driver.now_s += gap_s
        driver.submit([length % 3 + 1] * length, 5, service)
        for _ in range(num_steps):
            step()
    for _ in range(3000):
        if not driver.alive:
            break
        step()
    assert not driver.alive, "everybody is served"


def service_received(driver, steps, tenants):
    """Weighted tokens that each tenant was given, counted here, after each of `steps` steps, where
    nothing is cached."""
    received = dict.fromkeys(tenants, 0)
    for _ in range(steps):
        before = {one: one.num_computed_tokens for one in driver.alive.values()}
        driver.step()
        for one, computed in before.items():
            num_tokens = one.num_computed_tokens - computed
            is_generated = one.num_computed_tokens > one.num_prompt_tokens
            received[one.service.tenant] += num_tokens * (GENERATED_WEIGHT if is_generated else 1)
        yield received


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=3, max_size=3),
    max_running=st.integers(1, 6),
    policy=st.sampled_from(["first-come", "priority", "longest-prefix"]),
)
def test_tenants_that_always_wait_are_served_alike(shapes, max_running, policy):
    num_pages = 12
    driver = make(
        policy,
        fair_shares=True,
        max_running=max_running,
        num_pages=num_pages,
        prefix_cache=False,
    )
    tenants = dict(zip("abc", shapes, strict=True))
    for number in range(150):
        for tenant, (length, max_tokens) in tenants.items():
            prompt = [number % 60 + 1, "abc".index(tenant)] * length
            service = Service(tenant=tenant, priority="abc".index(tenant) * 5)
            driver.submit(prompt[:length], max_tokens, service)
    bound = 2 * max(40, GENERATED_WEIGHT * num_pages * PAGE_SIZE)
    for received in service_received(driver, 120, tenants):
        if {one.service.tenant for one in driver.scheduler.waiting} != set(tenants):
            break
        assert max(received.values()) - min(received.values()) <= bound


@pytest.mark.parametrize("fair_shares", [True, False])
def test_a_flood_of_one_tenant_leaves_the_others_their_share(fair_shares):
    driver = make(fair_shares=fair_shares, max_running=2, prefix_cache=False)
    for number in range(400):
        driver.submit([number % 60 + 1] * 20, 6, Service(tenant="flood"))
    for number in range(100):
        driver.submit([number % 60 + 1] * 20, 6, Service(tenant="other"))
    *_, received = service_received(driver, 200, ("flood", "other"))
    share = received["other"] / sum(received.values())
    assert share == (pytest.approx(0.5, abs=0.05) if fair_shares else 0)


@pytest.mark.parametrize("was_there_before", [True, False])
def test_a_tenant_that_was_away_is_not_owed_anything(was_there_before):
    driver = make(fair_shares=True, max_running=1, prefix_cache=False)
    if was_there_before:
        driver.submit([3] * 10, 4, Service(tenant="late"))
        driver.run_to_end()
    for number in range(300):
        driver.submit([number % 60 + 1] * 10, 4, Service(tenant="steady"))
    for _ in range(200):
        driver.step()
    for number in range(300):
        driver.submit([number % 60 + 1] * 10, 4, Service(tenant="late"))
    *_, received = service_received(driver, 100, ("steady", "late"))
    assert received["late"] / sum(received.values()) == pytest.approx(0.5, abs=0.1)


def test_tenants_that_come_once_are_forgotten():
    driver = make(fair_shares=True, max_running=8)
    for number in range(4000):
        driver.submit([number % 60 + 1], 1, Service(tenant=str(number)))
        driver.step()
    assert len(driver.scheduler.waiting._served) < 1100

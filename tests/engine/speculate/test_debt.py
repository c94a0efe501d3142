"""Drafting in vain costs a small share of the time, whatever made it so."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.speculate.adapt import Adapter
from paredown.engine.speculate.debt import SHARE, Debt

BATCH = 16
ANSWER_TOKENS = 200
# Microseconds of a step of n tokens: nearly flat, in tiles of 16, proportional.
STEPS = {
    "flat": lambda n: 1700 * (1 + 0.004 * (n - BATCH)),
    "tiles": lambda n: 1700 * (1 if n <= 16 else 1.25 if n <= 32 else 1.5 + 0.01 * (n - 48)),
    "steep": lambda n: 1700 * (1 + 0.02 * (n - BATCH)),
    # The built-in model on an idle Xeon, between the sizes that were measured.
    "built-in": lambda n: 950 + 31 * n if n <= 16 else 1100 + 30 * n,
}


@dataclass(frozen=True)
class Drafter:
    """Draft tokens come true with probability `rate`. A step finds something to propose for a
    request with a probability of `found_by`, of which each request has the next one. A call takes
    `call_us` for each request, and `round_us` for each token of the longest draft; a draft model
    first computes what it has missed, 512 tokens at a time."""

    rate: float
    found_by: tuple[float, ...] = (1.0,)
    call_us: float = 0.0
    round_us: float = 0.0
    catch_up_us: float = 0.0


def lookup(rate):
    return Drafter(rate, found_by=(0.9, 0.0, 0.3, 0.0), call_us=10)


def draft_model(rate):
    return Drafter(rate, round_us=150, catch_up_us=8)


class Batches:
    """Batches of 16 answers, one after the other, each until the last one has ended."""

    def __init__(self, step_us, drafter, *, noise):
        self.step_us, self.drafter, self.noise = step_us, drafter, noise
        self.chance, self.adapter = random.Random(0), Adapter()
        self.num_rest_steps, self.rested = 0, []

    def run(self, num_batches):
        """How many times faster than without draft tokens."""
        plain_us = speculating_us = 0.0
        for number in range(num_batches):
            plain_us += sum(self.noisy(self.step_us(BATCH)) for _ in range(ANSWER_TOKENS))
            speculating_us += self.run_one(range(number * BATCH, (number + 1) * BATCH))
        return plain_us / speculating_us

    def noisy(self, us):
        return us * self.chance.uniform(1, 1 + self.noise)

    def run_one(self, requests):
        left, missed, time_us = dict.fromkeys(requests, ANSWER_TOKENS), 32, 0.0
        while left:
            asked, drafting_us = {}, 0.0
            is_resting = self.num_rest_steps > 0
            if not is_resting:
                self.adapter.observe_rest(self.rested)
                self.rested.clear()
                limits = {one: min(16, count - 1) for one, count in left.items()}
                chosen = self.adapter.choose(limits, len(left))
                asked = {one: count for one, count in chosen.items() if count}
            missed += not asked
            if asked:
                drafting_us = self.drafting_us(asked, missed)
                missed = max(missed - 512 // len(asked), 0)
            drafts = self.find(asked, len(left))
            num_tokens = len(left) + sum(drafts.values())
            step_us = self.noisy(self.step_us(num_tokens))
            time_us += drafting_us + step_us
            num_right = self.take(left, drafts)
            if is_resting:
                self.rested.append((len(left), step_us / 1e6))
                self.num_rest_steps -= 1
                continue
            self.adapter.observe_step(
                num_tokens,
                sum(drafts.values()),
                step_us / 1e6,
                num_accepted=num_right,
                drafting_s=drafting_us / 1e6,
            )
            self.num_rest_steps = self.adapter.take_rest()
        return time_us

    def drafting_us(self, asked, missed):
        longest, drafter = max(asked.values()), self.drafter
        us = drafter.round_us * longest + drafter.call_us * len(asked)
        us += min(missed * len(asked), 512) * drafter.catch_up_us
        self.adapter.observe_drafting(longest, us / 1e6)
        return us

    def find(self, asked, num_tokens):
        shares = self.drafter.found_by
        found = {
            one: count if self.chance.random() < shares[one % len(shares)] else 0
            for one, count in asked.items()
        }
        return self.adapter.trim(found, num_tokens) if found else found

    def take(self, left, drafts):
        """How many draft tokens were right."""
        num_right = 0
        for one in list(left):
            accepted, count = 0, drafts.get(one, 0)
            while accepted < count and self.chance.random() < self.drafter.rate:
                accepted += 1
            if count:
                self.adapter.observe_acceptance(one, count, accepted)
            num_right += accepted
            left[one] -= 1 + accepted
            if left[one] == 0:
                del left[one]
                self.adapter.forget(one)
        return num_right


@pytest.mark.parametrize("noise", [0.02, 0.5])
@pytest.mark.parametrize("shape", STEPS)
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("kind", [lookup, draft_model])
def test_a_batch_of_sixteen_never_loses_three_percent(kind, shape, rate, noise):
    assert Batches(STEPS[shape], kind(rate), noise=noise).run(8) > 0.97


@pytest.mark.parametrize("kind", [draft_model, lambda rate: Drafter(rate, call_us=10)])
def test_what_pays_for_all_is_kept(kind):
    assert Batches(STEPS["flat"], kind(0.9), noise=0.5).run(8) > 2


def draft_while_it_gets_slower(debt, *, factor, num_steps):
    """Draft tokens that give a token in two steps more for a tenth of the time of one, on a machine
    that gets slower by `factor`. Returns the steps that were left out."""
    num_left_out = 0
    for step in range(num_steps):
        if debt.is_due:
            debt.pay(factor, 0.0)
            num_left_out += 1
        else:
            debt.owe(1.1 * factor, 1.0 if num_left_out < 4 else factor, 1, step % 2)
    return num_left_out


def test_a_machine_that_became_slower_is_no_debt():
    assert draft_while_it_gets_slower(Debt(), factor=2.0, num_steps=400) == 4
    assert draft_while_it_gets_slower(Debt(), factor=1.0, num_steps=400) == 0


@given(st.lists(st.tuples(st.floats(0.5, 3), st.integers(0, 4)), max_size=60))
def test_a_debt_is_due_beyond_some_steps_and_is_paid_off(steps):
    debt = Debt()
    for seconds, num_accepted in steps:
        debt.owe(seconds, 1.0, 1, num_accepted)
        assert debt.seconds >= 0
    owed = debt.seconds
    assert owed <= 12 or debt.is_due
    for _ in range(int(owed / SHARE) + 2):
        debt.pay(1.0, 0.0)
    assert debt.seconds == 0
    assert not debt.is_due


def test_drafting_in_vain_is_owed_too():
    debt = Debt()
    debt.pay(1.0, 0.5)
    assert debt.seconds == 0.5 - SHARE

"""Guessing in vain costs a small share of the time, whatever made it so."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.speculate.adapt import Adapter
from paredown.engine.speculate.debt import SHARE, Debt

BATCH = 16
# Microseconds of a step of n tokens: nearly flat, in tiles of 16, proportional.
STEPS = {
    "flat": lambda n: 1700 * (1 + 0.004 * (n - BATCH)),
    "tiles": lambda n: 1700 * (1 if n <= 16 else 1.25 if n <= 32 else 1.5 + 0.01 * (n - 48)),
    "steep": lambda n: 1700 * (1 + 0.02 * (n - BATCH)),
}


def simulate(step_us, rate, *, share_found, catch_up_us, round_us, noise, num_steps=1200):
    """How many times faster than without guesses: answers of 200 tokens, 16 together. Of requests
    that are asked about `share_found` get a guess; a draft model first computes the tokens that it
    has missed, 512 at a time."""
    chance, adapter = random.Random(0), Adapter()
    num_tokens, time_us, plain_us, num_missed = 0, 0.0, 0.0, 0
    for step in range(num_steps):
        first = step // 200 * BATCH
        limits = dict.fromkeys(range(first, first + BATCH), 16)
        num_missed = 32 if step % 200 == 0 else num_missed
        chosen = {} if adapter.rests() else adapter.choose(limits, BATCH)
        asked = {one: count for one, count in chosen.items() if count}
        proposal_us, drafts = 0.0, []
        if asked:
            most = max(asked.values())
            proposal_us = round_us * most + min(num_missed * len(asked), 512) * catch_up_us
            num_missed = max(num_missed - 512 // len(asked), 0)
        else:
            num_missed += 1
        for one, count in asked.items():
            if chance.random() < share_found:
                accepted = 0
                while accepted < count and chance.random() < rate:
                    accepted += 1
                drafts.append((one, count, accepted))
        num_guesses, num_accepted = (sum(one[i] for one in drafts) for i in (1, 2))
        taken_us = step_us(BATCH + num_guesses) * chance.uniform(1, 1 + noise)
        plain_us += step_us(BATCH) * chance.uniform(1, 1 + noise)
        time_us += taken_us + proposal_us
        num_tokens += BATCH + num_accepted
        adapter.observe_step(
            BATCH + num_guesses,
            num_guesses,
            taken_us / 1e6,
            num_accepted=num_accepted,
            proposal_s=proposal_us / 1e6,
        )
        if asked:
            adapter.observe_proposal(most, proposal_us / 1e6)
        for draft in drafts:
            adapter.observe_acceptance(*draft)
    return num_tokens / time_us / (BATCH * num_steps / plain_us)


@pytest.mark.parametrize("noise", [0.02, 0.5])
@pytest.mark.parametrize("shape", STEPS)
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6])
def test_sixteen_requests_never_lose_three_percent(shape, rate, noise):
    lookup = {"share_found": 0.3, "catch_up_us": 0, "round_us": 30}
    draft = {"share_found": 1.0, "catch_up_us": 8, "round_us": 150}
    for kind in (lookup, draft):
        assert simulate(STEPS[shape], rate, noise=noise, **kind) > 0.97


def test_what_pays_is_kept():
    gain = simulate(STEPS["flat"], 0.9, share_found=1.0, catch_up_us=8, round_us=150, noise=0.5)
    assert gain > 2


@given(st.lists(st.tuples(st.floats(0.5, 3), st.integers(0, 4)), max_size=60))
def test_a_debt_is_due_beyond_some_steps_and_is_paid_off(steps):
    debt = Debt()
    for seconds, num_accepted in steps:
        debt.guess(seconds, 1.0, 1, num_accepted)
        assert debt.seconds >= 0
    owed = debt.seconds
    assert owed <= 12 or debt.is_due
    for _ in range(int(owed / SHARE) + 2):
        debt.pay(1.0, 0.0)
    assert debt.seconds == 0
    assert not debt.is_due


def test_looking_for_guesses_in_vain_is_owed_too():
    debt = Debt()
    debt.pay(1.0, 0.5)
    assert debt.seconds == 0.5 - SHARE

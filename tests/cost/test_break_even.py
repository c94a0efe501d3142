"""Where methods stop paying: by trying every batch, and every number of guesses."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.test_roofline_step import roofline
from fakes.specs import gated
from fakes.step_costs import PerToken
from paredown.cost.break_even import (
    MAX_BATCH,
    MAX_DRAFT_TOKENS,
    best_speculation,
    break_even_batch,
    verify_load,
)
from paredown.cost.step_cost import StepLoad, decode_load, prompts_load
from paredown.spec.weight import WeightSpec

SPEC = gated(hidden_size=256, head_dim=64, intermediate_size=768, max_positions=4096)
INT4 = WeightSpec(dtype="int4", group_size=32)


def test_four_bits_stop_paying_where_arithmetic_takes_over() -> None:
    narrow, wide = roofline(INT4), roofline(WeightSpec(dtype="int8"))
    batch = break_even_batch(narrow, wide, 128, SPEC)
    assert batch is not None

    def gain(number: int) -> float:
        load = decode_load(number, 128)
        return wide.step_s(load) / narrow.step_s(load)

    assert gain(1) > 1.2
    assert gain(batch) < 1.05 <= gain(batch - 1)


def test_what_always_pays_has_no_break_even() -> None:
    assert break_even_batch(PerToken(), PerToken(10.0 * MAX_BATCH), 8, SPEC) is None


def test_speculation_pays_where_a_token_more_costs_little() -> None:
    free = best_speculation(PerToken(1e6), SPEC, batch=1, context=64, acceptance=0.5)
    assert free.num_draft_tokens == 16
    assert free.gain == pytest.approx(2.0, rel=1e-3)  # 1 / (1 - acceptance)
    dear = best_speculation(PerToken(), SPEC, batch=1, context=64, acceptance=0.9)
    assert (dear.num_draft_tokens, dear.gain) == (0, 1.0)


def test_a_verifying_step_is_a_chunk_of_each_sequence() -> None:
    load = verify_load(3, 10, 2, ())
    assert load.attention_pairs == 3 * (10 + 11 + 12)
    assert (load.num_tokens, load.num_logits, load.kv_tokens_read) == (9, 9, 3 * 12)


@dataclass(frozen=True)
class Line:
    """Bytes of weights take `fixed`, and arithmetic so much for a token; the longer binds."""

    fixed: float
    token: float

    def step_s(self, step: StepLoad) -> float:
        return max(self.fixed, self.token * step.num_tokens)


@given(st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_the_first_batch_that_does_not_pay_is_found(narrow: int, wide: int) -> None:
    """Against trying one batch after the other."""
    few, many = Line(float(narrow), 0.1), Line(float(narrow + wide), 0.1)

    def pays(batch: int) -> bool:
        load = decode_load(batch, 8)
        return many.step_s(load) >= 1.05 * few.step_s(load)

    first = next((one for one in range(1, 2 * MAX_BATCH) if not pays(one)), None)
    found = break_even_batch(few, many, 8, SPEC)
    if first is not None and found is not None:
        assert found == first
    else:
        assert first is None or first > MAX_BATCH
        assert found is None


@given(st.floats(0, 0.99), st.floats(0, 100), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_the_best_number_of_guesses_is_found(acceptance: float, fixed: float, batch: int) -> None:
    """By the closed form of what a step gives, at every number of guesses."""
    cost = PerToken(fixed)

    def gain(num_draft: int) -> float:
        tokens = (1 - acceptance ** (num_draft + 1)) / (1 - acceptance)
        return tokens * (fixed + batch) / (fixed + batch * (num_draft + 1))

    found = best_speculation(cost, SPEC, batch=batch, context=64, acceptance=acceptance)
    best = max(gain(one) for one in range(MAX_DRAFT_TOKENS + 1))
    assert found.gain == pytest.approx(best)
    assert gain(found.num_draft_tokens) == pytest.approx(best)
    assert found.batch == batch
    assert found.gain >= 1


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 9), st.integers(1, 30))
def test_a_verifying_step_computes_the_token_and_its_guesses(
    batch: int, context: int, num_draft: int, window: int
) -> None:
    load = verify_load(batch, context, num_draft, (window,))
    chunk = prompts_load(batch, num_draft + 1, context - 1, (window,))
    assert load == replace(chunk, num_logits=chunk.num_tokens, num_first_tokens=0)
    if num_draft == 0:
        assert load == decode_load(batch, context, (window,))

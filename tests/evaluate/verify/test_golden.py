"""Golden logits: what a sample of them tells apart, and what it does not."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fakes.toy_executor import ToyExecutor, reference_logits, toy_spec
from paredown.evaluate.verify.golden import (
    GOLDEN_KV,
    NUM_TOKENS,
    TOLERANCE,
    GoldenLogits,
    golden_tokens,
    hash_output,
    log_probabilities,
    make_golden,
    run_golden,
)
from paredown.spec.kv import PAGE_SIZE

ARITHMETIC = {"isa": "generic", "processor": "a"}
LOGITS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(2, 20)),
    elements=st.floats(-20, 20, width=32),
)


def log_softmax(logits_TV: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    wide = logits_TV.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


@given(LOGITS)
@settings(max_examples=50, deadline=None)
def test_the_sample_are_the_likeliest_tokens_and_how_likely(
    logits_TV: npt.NDArray[np.float32],
) -> None:
    golden = make_golden(logits_TV, ARITHMETIC)
    log_p_TV = log_softmax(logits_TV)
    num_sampled = min(8, logits_TV.shape[1])
    for row, tokens in enumerate(golden.sampled_TK):
        by_logit = sorted(range(logits_TV.shape[1]), key=lambda one: -logits_TV[row, one])
        assert tokens == by_logit[:num_sampled], "ties in the order of tokens"
    exact = np.take_along_axis(log_p_TV, np.array(golden.sampled_TK), axis=1)
    assert np.abs(np.array(golden.log_probabilities_TK) - exact).max() <= 0.6e-5
    found = log_probabilities(logits_TV, np.array(golden.sampled_TK))
    assert np.allclose(found, exact, atol=1e-6)
    assert golden.difference(found) < 1e-3 or np.abs(found).max() < 0.01


@given(LOGITS)
@settings(max_examples=50, deadline=None)
def test_it_survives_json(logits_TV: npt.NDArray[np.float32]) -> None:
    golden = make_golden(logits_TV, ARITHMETIC)
    assert GoldenLogits.from_json(json.loads(json.dumps(golden.as_json()))) == golden


@given(LOGITS, st.integers(0, 30))
@settings(max_examples=50, deadline=None)
def test_one_bit_of_one_logit_changes_the_hash(
    logits_TV: npt.NDArray[np.float32], bit: int
) -> None:
    changed = logits_TV.copy()
    changed.view(np.uint32)[-1, -1] ^= np.uint32(1 << bit)
    assert hash_output(changed) != hash_output(logits_TV)
    assert hash_output(logits_TV.copy()) == hash_output(logits_TV)
    assert hash_output(np.asfortranarray(logits_TV)) == hash_output(logits_TV)


def golden_of(log_p: list[float]) -> GoldenLogits:
    return GoldenLogits(
        sha256="", sampled_TK=[[0] * len(log_p)], log_probabilities_TK=[log_p], arithmetic={}
    )


def test_a_difference_is_relative_to_the_whole_sample() -> None:
    golden = golden_of([-3.0, -4.0])
    assert golden.difference(np.array([[-3.0, -4.0]])) == 0
    assert golden.difference(np.array([[-3.0, -4.5]])) == pytest.approx(0.5 / 5)
    assert golden.difference(np.array([[-6.0, -8.0]])) == pytest.approx(1)
    assert golden.difference(np.array([[-3.0, np.nan]])) == np.inf
    assert golden.difference(np.array([[-3.0, -np.inf]])) == np.inf


@given(st.lists(st.floats(-9, -1), min_size=1, max_size=9), st.floats(0, 1), st.floats(0.1, 10))
def test_a_difference_has_no_unit_and_no_sign(
    log_p: list[float], share: float, factor: float
) -> None:
    sample = np.array([log_p])
    for sign in (1, -1):
        found = golden_of(log_p).difference(sample * (1 + sign * share))
        assert found == pytest.approx(share, abs=1e-9)
    scaled = golden_of([factor * one for one in log_p])
    assert scaled.difference(factor * sample * (1 + share)) == pytest.approx(share, abs=1e-9)


def test_another_model_is_beyond_the_tolerance_and_noise_is_within() -> None:
    rng = np.random.default_rng(0)
    logits_TV = 3 * rng.normal(size=(NUM_TOKENS, 500)).astype(np.float32)
    golden = make_golden(logits_TV, ARITHMETIC)
    sampled_TK = np.array(golden.sampled_TK)

    def difference(other_TV: npt.NDArray[np.float32]) -> float:
        return golden.difference(log_probabilities(other_TV, sampled_TK))

    noise_TV = rng.normal(size=logits_TV.shape).astype(np.float32)
    assert difference(logits_TV + 0.01 * noise_TV) < TOLERANCE
    assert difference(logits_TV + 7.0) < 1e-4, "a shift is no other prediction"
    assert difference(3 * noise_TV) > 10 * TOLERANCE
    assert difference(np.roll(logits_TV, 1, axis=0)) > 10 * TOLERANCE


@pytest.mark.parametrize(("max_positions", "num_tokens"), [(5, 5), (64, 64), (65, 64), (2048, 64)])
def test_tokens_fit_the_model_and_its_pages(max_positions: int, num_tokens: int) -> None:
    for vocab_size in (2, 300, 512):
        spec = toy_spec(vocab_size=vocab_size, max_positions=max_positions)
        tokens = golden_tokens(spec)
        assert len(tokens) == num_tokens
        assert 0 <= min(tokens) <= max(tokens) < vocab_size
    assert GOLDEN_KV.num_pages * PAGE_SIZE == NUM_TOKENS


def test_all_rows_come_from_one_step_over_the_first_pages() -> None:
    executor = ToyExecutor(num_pages=GOLDEN_KV.num_pages)
    logits_TV = run_golden(executor)
    assert executor.num_steps == 1
    tokens = golden_tokens(executor.spec)
    for row in (0, 17, NUM_TOKENS - 1):
        assert np.array_equal(logits_TV[row], reference_logits(tokens[: row + 1], 512))
    assert hash_output(logits_TV) == hashlib.sha256(logits_TV.tobytes()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"sampled_TK": [[0.5]]},
        {"sampled_TK": [1, 2]},
        {"log_probabilities_TK": [[1.0, 2.0, 3.0]]},
        {"log_probabilities_TK": [["x", "y"]]},
        {"sha256": None},
        {"arithmetic": []},
    ],
)
def test_other_fields_are_no_golden_logits(change: dict[str, object]) -> None:
    golden = replace(golden_of([-1.0, -2.0]), sha256="ab")
    assert GoldenLogits.from_json(golden.as_json()) == golden
    with pytest.raises((TypeError, ValueError)):
        GoldenLogits.from_json(golden.as_json() | change)
    with pytest.raises(KeyError):
        GoldenLogits.from_json(dict.fromkeys(change))

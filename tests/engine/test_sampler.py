import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.sampling.sampler import (
    NonFiniteLogitsError,
    compute_logprobs,
    distribution,
    sample_token,
)
from paredown.engine.sampling.sampling_params import SamplingParams
from sampling_reference import reference_logprobs, reference_probabilities

# Quarters, so that ties are common and every value is exact in float32.
LOGITS = st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=1, max_size=60)


@given(
    LOGITS,
    st.sampled_from([0.3, 1.0, 2.5]),
    st.one_of(st.none(), st.integers(0, 70)),
    st.sampled_from([0.0101, 0.37, 0.777, 0.95, 1.0]),
)
def test_distribution_equals_the_reference(logits, temperature, top_k, top_p):
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    row = np.array(logits, np.float32)
    ids, weights = distribution(row, params)
    probs = np.zeros(len(row))
    probs[np.arange(len(row)) if ids is None else ids] = weights / weights.sum()
    expected = reference_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    np.testing.assert_allclose(probs, expected, rtol=1e-9, atol=1e-12)


def test_top_p_over_many_tokens_equals_the_reference():
    row = np.linspace(0, 1, 3000).astype(np.float32)
    params = SamplingParams(top_p=0.9)
    ids, weights = distribution(row, params)
    expected = reference_probabilities(row.tolist(), top_p=0.9)
    assert set(ids.tolist()) == {i for i, p in enumerate(expected) if p}
    np.testing.assert_allclose(weights / weights.sum(), np.array(expected)[ids], rtol=1e-9)


@given(LOGITS)
def test_greedy_is_the_first_largest(logits):
    row = np.array(logits, np.float32)
    token = sample_token(row, SamplingParams(temperature=0), seed=1, position=2)
    assert token == logits.index(max(logits))
    assert token == sample_token(row, SamplingParams(top_k=1), seed=1, position=2)


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"top_k": 7, "top_p": 0.9}],
    ids=str,
)
def test_samples_follow_the_exact_distribution(options):
    """Pearson chi-square over 20,000 positions; the seed is fixed, so the result is too."""
    logits = [2.0, 1.5, 1.5, 1.0, 0.5, 0.0, 0.0, -0.5, -1.0, -3.0]
    row, num_draws = np.array(logits, np.float32), 20_000
    params = SamplingParams(**options)
    draws = [sample_token(row, params, seed=11, position=i) for i in range(num_draws)]
    counts = np.bincount(draws, minlength=len(logits))
    expected = num_draws * np.array(reference_probabilities(logits, **options))
    assert not counts[expected == 0].any()
    kept = expected > 0
    chi_square = float(((counts - expected)[kept] ** 2 / expected[kept]).sum())
    degrees = int(kept.sum()) - 1
    # Mean `degrees`, variance 2 * degrees; five deviations above it is chance of about 1e-5.
    assert chi_square < degrees + 5 * (2 * degrees) ** 0.5


def test_a_draw_depends_on_seed_and_position_alone():
    row = np.zeros(1000, np.float32)
    params = SamplingParams()

    def draw(seed, position):
        return sample_token(row, params, seed=seed, position=position)

    forward = [draw(5, p) for p in range(50)]
    backward = [draw(5, p) for p in reversed(range(50))][::-1]
    assert forward == backward
    assert forward != [draw(6, p) for p in range(50)]
    assert len(set(forward)) > 30
    assert draw(-1, 3) == draw(-1, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_is_refused(bad, temperature):
    row = np.zeros(8, np.float32)
    row[3] = bad
    with pytest.raises(NonFiniteLogitsError):
        sample_token(row, SamplingParams(temperature=temperature), seed=0, position=0)


@given(LOGITS, st.integers(0, 20))
def test_logprobs_equal_the_reference(logits, num_top):
    row = np.array(logits, np.float32)
    found = compute_logprobs(row, len(logits) - 1, num_top)
    expected = reference_logprobs(logits)
    assert found.chosen.logprob == pytest.approx(expected[-1], rel=1e-12, abs=1e-12)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:num_top]
    assert [one.token_id for one in found.top] == order
    assert [one.logprob for one in found.top] == pytest.approx([expected[i] for i in order])


def test_a_tiny_temperature_is_greedy():
    row = np.array([1.0, 3.0, 2.0], np.float32)
    for params in (SamplingParams(temperature=1e-310), SamplingParams(temperature=1e-9, top_p=0.5)):
        assert {sample_token(row, params, seed=0, position=i) for i in range(20)} == {1}


def test_a_token_that_the_model_rules_out_is_never_drawn():
    row = np.array([0.0, -np.inf, 0.0], np.float32)
    for params in (SamplingParams(), SamplingParams(top_p=0.99), SamplingParams(top_k=2)):
        assert {sample_token(row, params, seed=0, position=i) for i in range(60)} == {0, 2}
    assert compute_logprobs(row, 0, 3).top[-1] == (1, -np.inf)

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.sampled_rows import LOGITS, SAMPLER, Row, rows, sample_rows, state_of
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.executors.core_sampler import CoreSampler
from paredown.executors.sampler import NOT_FINITE, NOTHING_ALLOWED, RowError
from references.sampling import (
    reference_draw,
    reference_logprobs,
    reference_noise,
    reference_probabilities,
)

THREADED = CoreSampler.with_threads(2)


def distribution(logits, params, **history):
    row = np.array([logits], np.float32)
    return SAMPLER.distribution(row, state_of(logits, params, **history))[0]


def sample(logits, params, **history):
    rows = np.array([logits], np.float32)
    return sample_rows(SAMPLER, rows, [state_of(logits, params, **history)])[0]


def reference_or_none(logits, params, **history):
    try:
        return reference_probabilities(logits, params, **history)
    except AssertionError:
        return None


@settings(max_examples=600, deadline=None)
@given(rows(), st.integers(-(2**63), 2**63 - 1))
def test_distribution_and_draw_equal_the_reference(case, seed):
    logits, params, prompt, generated, eos = case
    history = {"prompt": prompt, "generated": generated, "eos": eos}
    expected = reference_or_none(logits, params, **history)
    sampled = sample(logits, params, seed=seed, **history)
    if expected is None:
        assert sampled.failure == NOTHING_ALLOWED
        with pytest.raises(RowError, match="allow no token"):
            distribution(logits, params, **history)
        return
    probs = distribution(logits, params, **history)
    np.testing.assert_allclose(probs, expected, rtol=1e-9, atol=1e-12)
    assert sampled.failure is None
    position = len(prompt) + len(generated)
    assert sampled.token_id == reference_draw(expected, seed, position)


@pytest.mark.parametrize("vocab_size", [1, 7, 8, 9, 255, 257, 3000, 40_001])
@pytest.mark.parametrize(
    "options",
    [{}, {"top_p": 0.9}, {"top_k": 50, "min_p": 0.02}, {"typical_p": 0.9}, {"temperature": 0.01}],
    ids=str,
)
def test_rows_of_every_length_equal_the_reference(vocab_size, options):
    row = np.random.default_rng(vocab_size).normal(0, 3, vocab_size).astype(np.float32)
    params = SamplingParams(**options)
    expected = reference_probabilities(row.tolist(), params)
    probs = distribution(row.tolist(), params)
    np.testing.assert_allclose(probs, expected, rtol=1e-9, atol=1e-15)
    assert probs.sum() == pytest.approx(1, abs=1e-12)
    for seed in (1, 5, 900):
        found = sample(row.tolist(), params, seed=seed)
        assert found.token_id == reference_draw(expected, seed, 1)


def test_weights_are_exponentials_to_a_few_ulp():
    row = np.concatenate([[0.0], -np.geomspace(1e-7, 699, 5000)]).astype(np.float32)
    probs = distribution(row.tolist(), SamplingParams())
    weights = probs / probs[0]
    np.testing.assert_allclose(weights, np.exp(row.astype(np.float64)), rtol=2.0**-50)
    assert distribution([0.0, -701.0], SamplingParams()).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("top_p", [1e-12, 0.5, 1 - 1e-9, 1 - 2.0**-53])
def test_the_ends_of_top_p(top_p):
    row = np.random.default_rng(2).normal(0, 2, 3000).astype(np.float32)
    probs = distribution(row.tolist(), SamplingParams(top_p=top_p))
    expected = np.sort(np.exp(row.astype(np.float64)))[::-1].cumsum()
    num_kept = int(np.searchsorted(expected, top_p * expected[-1])) + 1
    assert abs(np.count_nonzero(probs) - num_kept) <= (1 if 1 - top_p < 1e-8 else 0)


def test_equal_logits_are_kept_from_the_smaller_id_on():
    for params in (SamplingParams(top_k=3), SamplingParams(top_p=0.29), SamplingParams(top_k=3)):
        assert np.flatnonzero(distribution([0.5] * 10, params)).tolist() == [0, 1, 2]


@given(LOGITS)
def test_greedy_is_the_first_largest(logits):
    expected = logits.index(max(logits))
    for params in (SamplingParams(temperature=0), SamplingParams(top_k=1)):
        assert sample(logits, params).token_id == expected
        assert distribution(logits, params)[expected] == 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_p": 0.8},
        {"top_k": 7, "top_p": 0.9},
        {"min_p": 0.2},
        {"typical_p": 0.7},
        {"repetition_penalty": 1.5, "presence_penalty": 0.4, "logit_bias": {8: 3.0}},
    ],
    ids=str,
)
def test_samples_follow_the_exact_distribution(options):
    """Pearson chi-square over 20,000 draws; the seed is fixed, so the result is too."""
    logits = [2.0, 1.5, 1.5, 1.0, 0.5, 0.0, 0.0, -0.5, -1.0, -3.0]
    params, num_draws = SamplingParams(**options), 20_000
    states = [state_of(logits, params, prompt=[0] * 3 + [1], seed=i) for i in range(num_draws)]
    rows = np.tile(np.array(logits, np.float32), (num_draws, 1))
    draws = THREADED.sample(rows, states).token_ids
    counts = np.bincount(draws, minlength=len(logits))
    expected = num_draws * np.array(reference_probabilities(logits, params, prompt=[0, 1]))
    assert not counts[expected == 0].any()
    kept = expected > 0
    chi_square = float(((counts - expected)[kept] ** 2 / expected[kept]).sum())
    degrees = int(kept.sum()) - 1
    # Mean `degrees`, variance 2 * degrees; five deviations above it is chance of about 1e-5.
    assert chi_square < degrees + 5 * (2 * degrees) ** 0.5


def test_the_noise_is_exponential_and_never_changes():
    noise = np.array([reference_noise(640, seed, 3) for seed in range(200)])
    # The 99.9 % point of Kolmogorov and Smirnov's distance.
    ranks = (np.arange(noise.size) + 0.5) / noise.size
    assert np.abs(1 - np.exp(-np.sort(noise.ravel())) - ranks).max() < 1.95 / noise.size**0.5
    # Tokens of one block and of two are independent of each other.
    for other in (1, 63, 64, 500):
        pairs = np.exp(-noise[:, [0, other]])
        assert abs(np.corrcoef(pairs.T)[0, 1]) < 3.3 / len(pairs) ** 0.5
    golden = [0.13435691949943493, 1.7668102962684233, 0.5756654661295315]
    assert [reference_noise(70, 7, 24)[i] for i in (0, 33, 69)] == golden


def test_draws_never_change():
    row = np.cos(np.arange(500)).tolist()
    found = [sample(row, SamplingParams(), seed=seed).token_id for seed in range(8)]
    assert found == [302, 107, 339, 144, 309, 381, 105, 407]


def random_batch(num_rows, vocab_size):
    """Rows, settings, histories of every kind, in a fixed order."""
    random = np.random.default_rng(5)
    logits = (4 * random.normal(size=(num_rows, vocab_size))).astype(np.float32)
    options = [
        {"temperature": 0},
        {"top_p": 0.9},
        {"top_k": 40, "min_p": 0.05},
        {"typical_p": 0.8, "repetition_penalty": 1.2},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"allowed_token_ids": tuple(range(0, vocab_size, 7))},
        {},
    ]
    params = [
        SamplingParams(**options[i % 7], logprobs=[None, 0, 3][i % 3]) for i in range(num_rows)
    ]
    prompts = [random.integers(0, vocab_size, 20).tolist() for _ in range(num_rows)]
    return logits, params, prompts


def test_a_row_alone_and_in_33_has_the_same_bits_on_any_number_of_threads():
    logits, params, prompts = random_batch(33, 4099)

    def states():
        return [state_of(logits[i], one, prompt=prompts[i], seed=i) for i, one in enumerate(params)]

    alone = [
        *itertools.chain.from_iterable(
            sample_rows(SAMPLER, logits[i : i + 1], [state]) for i, state in enumerate(states())
        )
    ]
    assert sample_rows(SAMPLER, logits, states()) == alone
    assert sample_rows(THREADED, logits, states()) == alone
    assert sample_rows(CoreSampler.with_threads(5), logits, states()) == alone
    back = sample_rows(THREADED, logits[::-1].copy(), states()[::-1])
    assert back[::-1] == alone


@pytest.mark.parametrize("sharpness", [0.2, 1.0, 3.0])
def test_alike_rows_mostly_draw_the_same_token(sharpness):
    """Rows p and q of one seed and position agree with probability (1 - TV) / (1 + TV) at least
    (Daliri, Musco and Suresh, "Coupling without communication", 2024)."""
    random, num_draws = np.random.default_rng(3), 4000
    p = (sharpness * random.normal(size=300)).astype(np.float32)
    q = p + (0.5 * random.normal(size=300)).astype(np.float32)
    params = SamplingParams()
    draws = []
    for row in (p, q):
        states = [state_of(row, params, seed=i) for i in range(num_draws)]
        rows = np.tile(row, (num_draws, 1))
        draws.append(np.array(THREADED.sample(rows, states).token_ids))
    distance = 0.5 * np.abs(distribution(p, params) - distribution(q, params)).sum()
    bound = (1 - distance) / (1 + distance)
    deviation = (bound * (1 - bound) / num_draws) ** 0.5
    assert (draws[0] == draws[1]).mean() > bound - 3 * deviation


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_fails_alone(bad, temperature):
    rows = np.zeros((3, 40), np.float32)
    rows[1, 37] = bad
    rows[2] = -np.inf
    params = SamplingParams(temperature=temperature, logprobs=0)
    states = [state_of(rows[0], params) for _ in range(3)]
    good, *failed = sample_rows(SAMPLER, rows, states)
    assert good.failure is None
    assert [one.failure for one in failed] == [NOT_FINITE] * 2
    assert [one.num_tokens for one in states] == [2, 1, 1]
    with pytest.raises(RowError, match="not finite"):
        SAMPLER.logprobs(rows, [0, 0, 0], 2)


@given(LOGITS, st.integers(0, 20))
def test_logprobs_equal_the_reference(logits, num_top):
    row = np.array([logits], np.float32)
    found = SAMPLER.logprobs(row, [len(logits) - 1], num_top)[0]
    expected = reference_logprobs(logits)
    assert found.chosen.token_id == len(logits) - 1
    assert found.chosen.logprob == pytest.approx(expected[-1], rel=1e-12, abs=1e-12)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:num_top]
    assert [one.token_id for one in found.top] == order
    assert [one.logprob for one in found.top] == pytest.approx([expected[i] for i in order])


def test_settings_do_not_change_the_reported_logprobs():
    logits = [1.0, 3.0, 2.0]
    params = SamplingParams(temperature=0.1, allowed_token_ids=(2,), logit_bias={2: 4}, logprobs=3)
    sampled = sample(logits, params)
    assert sampled.token_id == 2
    assert sampled.logprobs.chosen.logprob == pytest.approx(reference_logprobs(logits)[2])
    assert [one.token_id for one in sampled.logprobs.top] == [1, 2, 0]


def test_a_token_that_the_model_rules_out_is_never_drawn():
    logits = [0.0, -np.inf, 0.0]
    for params in (SamplingParams(), SamplingParams(top_p=0.99), SamplingParams(top_k=2)):
        assert {sample(logits, params, seed=i).token_id for i in range(60)} == {0, 2}
    found = SAMPLER.logprobs(np.array([logits], np.float32), [0], 3)[0]
    assert found.top[-1] == (1, -np.inf)


def test_what_a_token_filter_allowed_holds_for_one_token():
    state = state_of([0.0] * 9, SamplingParams(temperature=0))
    row = np.arange(9, dtype=np.float32)[None]
    state.allow_next(np.array([2, 5], np.int32))
    assert [SAMPLER.sample(row, [state]).token_ids for _ in range(2)] == [[5], [8]]


def test_states_and_rows_that_do_not_fit_are_refused():
    row = np.zeros((2, 9), np.float32)
    state, other = state_of(row[0], SamplingParams()), state_of([0.0] * 8, SamplingParams())
    with pytest.raises(ValueError, match="a state is None"):
        SAMPLER.sample(row[:1], [None])
    with pytest.raises(ValueError, match="same state"):
        SAMPLER.sample(row, [state, state])
    with pytest.raises(ValueError, match="another vocabulary"):
        SAMPLER.sample(row, [state, other])
    with pytest.raises(ValueError, match="must be"):
        SAMPLER.sample(row, [state])
    with pytest.raises(ValueError, match="token 9"):
        state.push(9)
    with pytest.raises(ValueError, match="no generated token"):
        state.pop()
    assert SAMPLER.sample(row[:0], []) == ([], [], [])


@pytest.mark.parametrize("sampler", [SAMPLER, THREADED], ids=["one thread", "threads"])
def test_a_run_is_what_rows_one_after_the_other_give(sampler):
    rng = np.random.default_rng(0)
    params = SamplingParams(temperature=1.0, top_k=3, repetition_penalty=1.3, logprobs=1)
    rows = rng.normal(0, 3, (24, 6000)).astype(np.float32)
    lengths = {0: 5, 6: 0, 7: 3, 11: 8, 20: 2}  # draft tokens by first row

    def states():
        return [state_of(rows[0], params, seed=first) for first in lengths]

    expected, drafts = [], []
    for number, (state, (first, length)) in enumerate(zip(states(), lengths.items(), strict=True)):
        row_after_row = [
            sample_rows(sampler, rows[[first + i]], [state])[0] for i in range(1 + length)
        ]
        draft = [one.token_id for one in row_after_row[:length]]
        num_right = length
        if number in (2, 3):  # the third draft token is wrong: the token in its place is the last
            draft[2] = (draft[2] + 1) % 6000
            num_right = 2
        drafts.append(draft)
        expected.append(row_after_row[: num_right + 1])
    runs = sampler.sample_runs(rows, list(lengths), drafts, states())
    assert [[Row(*one) for one in run] for run in runs] == expected


def test_a_run_ends_with_the_row_that_fails():
    rows = np.zeros((4, 9), np.float32)
    rows[1] = np.nan
    rows[:, 3] = 1.0
    state = state_of(rows[0], SamplingParams(temperature=0))
    (run,) = SAMPLER.sample_runs(rows, [0], [[3, 3, 3]], [state])
    assert [one.token_id for one in run][:1] == [3]
    assert [one.failure for one in run] == [None, NOT_FINITE]
    assert state.num_tokens == 2, "the failing row leaves it as it was"


def test_runs_that_do_not_fit_are_refused():
    rows = np.zeros((3, 9), np.float32)
    state, other = state_of(rows[0], SamplingParams()), state_of([0.0] * 8, SamplingParams())
    for first_rows, drafts, states, message in (
        ([0, 1], [[], []], [state, state], "same state"),
        ([0], [[]], [other], "another vocabulary"),
        ([0], [[], []], [state], "for each state"),
        ([], [[]], [state], "for each state"),
        ([-1], [[]], [state], "not all there"),
        ([3], [[]], [state], "not all there"),
        ([1], [[4, 4]], [state], "not all there"),
    ):
        with pytest.raises(ValueError, match=message):
            SAMPLER.sample_runs(rows, first_rows, drafts, states)
    assert state.num_tokens == 1
    assert SAMPLER.sample_runs(rows, [], [], []) == []

"""Masks of bits in the sampler: what they forbid is as if a list had left it out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.sampled_rows import SAMPLER, rows, sample_rows, state_of
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.executors.sampler import NOT_FINITE, NOTHING_ALLOWED


def mask_words(allowed, vocab_size):
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[list(allowed)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


@settings(max_examples=300, deadline=None)
@given(rows(), st.data())
def test_a_mask_allows_what_a_list_of_tokens_allows(case, data):
    logits, params, prompt, generated, eos = case
    allowed = data.draw(st.sets(st.integers(0, len(logits) - 1), min_size=1))
    ends = {*params.stop_token_ids, *eos}
    history = {"prompt": prompt, "generated": generated, "eos": eos}
    masked, listed = (state_of(logits, params, **history) for _ in range(2))
    masked.mask_next(mask_words(allowed, len(logits))[None])
    listed.allow_next(np.array(sorted(allowed), np.int32))
    row = np.array([logits], np.float32)
    found, expected = (sample_rows(SAMPLER, row, [one])[0] for one in (masked, listed))
    if allowed <= ends and len(generated) < params.min_tokens:
        return  # the next test
    assert found == expected


def test_a_mask_that_leaves_only_the_end_counts_more_than_min_tokens():
    params = SamplingParams(temperature=0, min_tokens=5)
    row = np.arange(40, dtype=np.float32)[None]
    for allowed, expected in (({3}, 3), ({3, 7}, 7)):
        state = state_of(row[0], params, eos=(3, 4))
        state.mask_next(mask_words(allowed, 40)[None])
        assert SAMPLER.sample(row, [state]).token_ids == [expected]


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 64, 1000])
def test_the_bits_of_a_mask_are_tokens_and_those_beyond_are_none(vocab_size):
    row = np.arange(vocab_size, dtype=np.float32)[None]
    for token in {0, vocab_size // 2, vocab_size - 1}:
        words = np.full(vocab_size // 32 + 3, 2**32 - 1, np.uint32)
        words[: -(-vocab_size // 32)] = mask_words({token}, vocab_size)
        state = state_of(row[0], SamplingParams(temperature=0))
        state.mask_next(words[None])
        assert SAMPLER.sample(row, [state]).token_ids == [token]
        assert SAMPLER.sample(row, [state]).token_ids == [vocab_size - 1]


def test_each_draw_of_a_run_has_its_mask_and_later_ones_have_none():
    rows = np.tile(np.arange(40, dtype=np.float32), (3, 1))
    masks = np.stack([mask_words({token}, 40) for token in (5, 6, 7)])
    for draft, expected in (((5, 6), [5, 6, 7]), ((5, 9), [5, 6]), ((9, 9), [5]), ((), [5])):
        state = state_of(rows[0], SamplingParams(temperature=0))
        state.mask_next(masks[: 1 + len(draft)])
        ((*run,),) = SAMPLER.sample_runs(rows, [0], [draft], [state])
        assert [one.token_id for one in run] == expected
        assert SAMPLER.sample(rows[:1], [state]).token_ids == [39]


def test_masks_that_do_not_fit_or_leave_nothing_are_told():
    row = np.zeros((1, 40), np.float32)
    state = state_of(row[0], SamplingParams())
    with pytest.raises(ValueError, match="too short for a vocabulary of 40"):
        state.mask_next(np.zeros((1, 1), np.uint32))
    state.mask_next(np.zeros((1, 2), np.uint32))
    assert SAMPLER.sample(row, [state]).failures == [NOTHING_ALLOWED]
    failing = np.full((1, 40), np.nan, np.float32)
    assert SAMPLER.sample(failing, [state]).failures == [NOT_FINITE]

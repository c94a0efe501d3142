"""Proposers that look tokens up, against a scan of everything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.service import Service
from paredown.engine.speculate.ngram import NgramProposer
from paredown.engine.speculate.proposer import Ask
from paredown.engine.speculate.reference_text import ReferenceTextProposer
from paredown.engine.speculate.suffix_cache import SuffixCacheProposer
from paredown.kernels.suffix_index import SuffixIndex
from references.suffix import reference_continuation, reference_find

TOKENS = st.lists(st.integers(0, 2), max_size=40)
LIMITS = {"max_match": SuffixIndex.MAX_MATCH, "max_places": SuffixIndex.MAX_PLACES}


def make_request(token_ids, *, request_id=0, num_prompt_tokens=1, salt=""):
    return Request(
        id=request_id,
        params=SamplingParams(temperature=0),
        num_prompt_tokens=num_prompt_tokens,
        token_ids=token_ids,
        max_total_tokens=10_000,
        service=Service(tenant=salt),
    )


@settings(max_examples=300, deadline=None)
@given(
    st.lists(TOKENS, min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 4),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_an_index_that_grew_finds_what_a_scan_finds(
    texts, min_match, extra_match, max_places, max_tokens
):
    limits = {
        "min_match": min_match,
        "max_match": min_match + extra_match,
        "max_places": max_places,
    }
    index = SuffixIndex(**limits)
    for number, text in enumerate(texts):
        growing = []
        for token in text:  # token by token, as an answer grows
            growing.append(token)
            index.update(number, growing)
    own, tail = len(texts) - 1, texts[-1]
    match = index.find(tail)
    expected = reference_find(texts, tail, **limits)
    assert (None if match is None else (match.length, match.places)) == expected
    if match is not None:
        for owner in (own, None):
            assert index.continue_from(match, max_tokens, own=owner) == reference_continuation(
                texts, match.places, max_tokens, own=owner
            )


@given(st.lists(TOKENS, min_size=2, max_size=5), st.data())
def test_what_is_removed_leaves_nothing(texts, data):
    index, without = SuffixIndex(min_match=2, max_places=1000), SuffixIndex(min_match=2)
    removed = data.draw(st.integers(0, len(texts) - 1))
    for number, text in enumerate(texts):
        index.update(number, text)
        if number != removed:
            without.update(number, text)
    index.remove(removed)
    assert index.num_runs == without.num_runs
    for number in set(range(len(texts))) - {removed}:
        index.remove(number)
    assert index.num_runs == 0


def test_a_search_looks_at_few_places_and_no_further_back_than_it_has_to():
    index = SuffixIndex(min_match=2)
    index.update(0, [7] * 3000)
    match = index.find([7] * 3000)
    assert match.length == SuffixIndex.MAX_MATCH
    assert match.places == [(0, 2999 - i) for i in range(SuffixIndex.MAX_PLACES)]


def test_what_an_index_cannot_be_asked_is_refused():
    for limits in (
        {"min_match": 0},
        {"min_match": 5, "max_match": 4},
        {"min_match": 1, "max_places": 0},
    ):
        with pytest.raises(ValueError, match="min_match"):
            SuffixIndex(**limits)
    index = SuffixIndex(min_match=1)
    with pytest.raises(IndexError, match="no sequence"):
        index.remove(3)
    for token_ids in ([1 << 40], ["a"], [None]):
        with pytest.raises((TypeError, RuntimeError)):
            index.update(0, token_ids)
    assert index.find([]) is None
    index.update(0, [])
    assert (index.num_sequences, index.num_runs) == (1, 0)


def test_what_came_after_a_sequence_that_is_gone_is_not_known():
    index = SuffixIndex(min_match=1)
    index.update(0, [1, 2, 3])
    match = index.find([1])
    assert index.continue_from(match, 2, own=None) == [2, 3]
    index.remove(0)
    assert index.continue_from(match, 2, own=None) == []


def test_a_copy_goes_on_behind_a_changed_token():
    source = list(range(100, 120))
    proposer = NgramProposer(min_match=2)
    for number_before, expected in ((8, source[9:13]), (7, [])):
        copy = [*source[8 - number_before : 8], 7]  # 7 in the place of 108
        request = make_request([*source, 5, *copy], request_id=number_before)
        assert proposer.propose([Ask(request, 4)])[0] == expected


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=12, max_size=40),
    st.lists(st.integers(0, 5), max_size=3),
    st.data(),
)
def test_copies_with_a_changed_token_are_found_as_by_a_scan(text, between, data):
    start = data.draw(st.integers(0, len(text) - 9))
    end = data.draw(st.integers(start + 8, len(text) - 1))
    token_ids = [*text, *between, *text[start:end], data.draw(st.integers(0, 7))]
    for limits in (LIMITS, {"max_match": 9, "max_places": 2}):
        index = SuffixIndex(min_match=3, **limits)
        index.update(0, token_ids)
        match = index.find(token_ids)
        expected = reference_find([token_ids], token_ids, min_match=3, **limits)
        assert (None if match is None else (match.length, match.places)) == expected
        if match is not None:
            assert index.continue_from(match, 5, own=0) == reference_continuation(
                [token_ids], match.places, 5, own=0
            )


def test_a_loop_is_drafted_beyond_its_end():
    proposer = NgramProposer(min_match=2)
    draft = proposer.propose([Ask(make_request([9, 1, 2, 3, 1, 2, 3]), 8)])[0]
    assert draft == [1, 2, 3, 1, 2, 3, 1, 2]


def test_the_continuation_that_was_seen_more_often_wins_then_the_later_one():
    proposer = NgramProposer(min_match=1)
    often = make_request([6, 5, 1, 7, 5, 2, 8, 5, 1, 9, 5, 2, 0, 5, 1, 3, 5])
    assert proposer.propose([Ask(often, 1)])[0] == [1]
    late = make_request([6, 5, 1, 7, 5, 2, 8, 5], request_id=1)
    assert proposer.propose([Ask(late, 1)])[0] == [2]


@settings(max_examples=150, deadline=None)
@given(TOKENS, st.integers(1, 3), st.integers(1, 12))
def test_ngram_proposes_what_the_scan_does(token_ids, min_match, max_tokens):
    draft = NgramProposer(min_match=min_match).propose([Ask(make_request(token_ids), max_tokens)])[
        0
    ]
    found = reference_find([token_ids], token_ids, min_match=min_match, **LIMITS)
    expected = []
    if found is not None:
        expected = reference_continuation([token_ids], found[1], max_tokens, own=0)
    assert draft == expected
    assert len(draft) <= max_tokens


@settings(max_examples=150, deadline=None)
@given(st.lists(TOKENS, min_size=1, max_size=3), TOKENS, st.integers(1, 12))
def test_references_propose_what_the_scan_does_and_keep_nothing(texts, token_ids, max_tokens):
    proposer = ReferenceTextProposer(texts, min_match=2)
    request = make_request(token_ids)
    draft = proposer.propose([Ask(request, max_tokens)])[0]
    found = reference_find(texts, token_ids, min_match=2, **LIMITS)
    expected = []
    if found is not None:
        expected = reference_continuation(texts, found[1], max_tokens, own=None)
    assert draft == expected
    proposer.forget(request)
    assert proposer.propose([Ask(request, max_tokens)])[0] == expected


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TOKENS, st.integers(0, 10)), max_size=12), st.integers(1, 60))
def test_the_suffix_cache_is_bounded_whatever_is_put_in(answers, max_cached_tokens):
    proposer = SuffixCacheProposer(min_match=2, max_cached_tokens=max_cached_tokens)
    for number, (token_ids, num_prompt_tokens) in enumerate(answers):
        request = make_request(
            token_ids,
            request_id=number,
            num_prompt_tokens=min(num_prompt_tokens, len(token_ids)),
            salt="ab"[number % 2],
        )
        if token_ids:
            proposer.propose([Ask(request, 4)])
        proposer.forget(request)
        proposer.check_integrity()


def test_the_suffix_cache_drafts_from_earlier_answers_and_not_from_their_prompts():
    proposer = SuffixCacheProposer(min_match=2, max_cached_tokens=100)
    proposer.forget(make_request([50, 51, 52, 1, 2, 3, 4], num_prompt_tokens=3))
    ask = Ask(make_request([8, 1, 2], request_id=1), 5)
    assert proposer.propose([ask])[0] == [3, 4]
    assert not proposer.propose([Ask(make_request([8, 50, 51], request_id=2), 5)])[0]


def test_answers_to_another_salt_are_not_drafted_from():
    proposer = SuffixCacheProposer(min_match=2, max_cached_tokens=100)
    proposer.forget(make_request([0, 1, 2, 3, 4], salt="one tenant"))
    other = make_request([8, 1, 2], request_id=1, salt="another")
    assert proposer.propose([Ask(other, 2)])[0] == []
    same = make_request([8, 1, 2], request_id=2, salt="one tenant")
    assert proposer.propose([Ask(same, 2)])[0] == [3, 4]


def test_the_longer_match_of_cache_and_own_text_wins():
    proposer = SuffixCacheProposer(min_match=2, max_cached_tokens=100)
    proposer.forget(make_request([0, 1, 2, 3, 4], num_prompt_tokens=1))
    own = make_request([2, 3, 9, 1, 2, 3], request_id=1)
    assert proposer.propose([Ask(own, 1)])[0] == [4]
    own = make_request([7, 1, 2, 3, 9, 7, 1, 2, 3], request_id=2)
    assert proposer.propose([Ask(own, 1)])[0] == [9]


def test_what_was_matched_last_stays_longest():
    proposer = SuffixCacheProposer(min_match=2, max_cached_tokens=8)
    for number, first in enumerate((10, 20)):
        answer = [0, *range(first, first + 4)]
        proposer.forget(make_request(answer, request_id=number))
    used = Ask(make_request([0, 10, 11], request_id=5), 2)
    assert proposer.propose([used])[0] == [12, 13]
    proposer.forget(make_request([0, 30, 31, 32, 33], request_id=6))
    assert proposer.propose([used])[0] == [12, 13]
    gone = Ask(make_request([0, 20, 21], request_id=7), 2)
    assert proposer.propose([gone])[0] == []


@pytest.mark.parametrize("min_match", [1, 2, 4])
def test_texts_shorter_than_a_match_are_no_match(min_match):
    proposer = NgramProposer(min_match=min_match)
    assert proposer.propose([Ask(make_request([3] * min_match), 4)])[0] == []
    empty = make_request([], request_id=1)
    assert proposer.propose([Ask(empty, 4)])[0] == []

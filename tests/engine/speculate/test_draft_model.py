"""The draft model beside the target: pages, acceptance, what it computes again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.toy_executor import ToyExecutor, reference_logits, toy_spec
from paredown.engine.request import Request
from paredown.engine.sampling.make_draw_settings import make_draw_settings
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.speculate.draft_model import MAX_PREFILL_TOKENS, DraftModelProposer
from paredown.engine.speculate.proposer import Ask
from paredown.executors.core_sampler import CoreSampler
from paredown.spec.kv import PAGE_SIZE

VOCAB_SIZE = 512
SAMPLER = CoreSampler.with_threads(1)


def make_proposer(*, num_pages=64, max_positions=256):
    spec = toy_spec(vocab_size=VOCAB_SIZE, max_positions=max_positions)
    return DraftModelProposer(ToyExecutor(num_pages=num_pages, spec=spec))


def make_request(token_ids, request_id=0, **params):
    return Request(
        id=request_id,
        params=SamplingParams(**{"temperature": 0, **params}),
        num_prompt_tokens=len(token_ids),
        token_ids=token_ids,
        max_total_tokens=10_000,
        seed=request_id,
    )


def state_of(request, vocab_size=VOCAB_SIZE):
    settings = make_draw_settings(request.params, seed=request.seed)
    return SAMPLER.make_state(settings, request.token_ids, vocab_size)


def asking(request, max_tokens, vocab_size=VOCAB_SIZE):
    return Ask(request, max_tokens, state_of(request, vocab_size))


def plain_draft(request, max_tokens):
    """Each token from the whole sequence computed anew."""
    state = state_of(request)
    token_ids = list(request.token_ids)
    for _ in range(max_tokens):
        logits = reference_logits(token_ids, VOCAB_SIZE)
        token_ids += SAMPLER.sample(logits[None], [state]).token_ids
    return token_ids[len(request.token_ids) :]


ROUNDS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6), st.integers(1, 511)), max_size=8)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(1, 511), min_size=1, max_size=40), ROUNDS), max_size=4),
    st.sampled_from([0.0, 0.9]),
    st.integers(2, 20),
)
def test_drafts_are_those_of_the_model_whatever_came_true(work, temperature, num_pages):
    """Some tokens of a draft come true, then another follows, or the draft's own by chance."""
    proposer = make_proposer(num_pages=num_pages)
    requests = [
        make_request(list(prompt), i, temperature=temperature) for i, (prompt, _) in enumerate(work)
    ]
    for number in range(8):
        asked = [i for i, (_, rounds) in enumerate(work) if number < len(rounds)]
        asks = [asking(requests[i], work[i][1][number][0]) for i in asked]
        drafts = proposer.propose(asks)
        proposer.check_integrity()
        for i, ask, draft in zip(asked, asks, drafts, strict=True):
            assert draft in ([], plain_draft(ask.request, ask.max_tokens))
            _, num_true, other = work[i][1][number]
            ask.request.token_ids += [*draft[:num_true], other]
            if num_true % 2 and len(draft) > num_true:
                ask.request.token_ids[-1] = draft[num_true]
    for request in requests:
        proposer.forget(request)
        proposer.forget(request)
    assert proposer._pool.num_free == num_pages


def test_what_came_true_is_not_computed_again():
    proposer, request = make_proposer(), make_request([5, 6, 7])
    computed = []
    step = proposer.executor.step

    def count(slices):
        computed.append([(one.start, len(one.token_ids)) for one in slices])
        return step(slices)

    proposer.executor.step = count
    draft = proposer.propose([asking(request, 3)])[0]
    assert computed == [[(0, 3)], [(3, 1)], [(4, 1)]]
    computed.clear()
    request.token_ids += [*draft, 9]
    proposer.propose([asking(request, 1)])
    # Its own last draft token and the token after it.
    assert computed == [[(5, 2)]]
    computed.clear()
    request.token_ids += [8]
    proposer.propose([asking(request, 1)])
    assert computed == [[(7, 1)]]


def test_a_long_prompt_is_computed_in_pieces_and_waits_for_its_draft():
    proposer = make_proposer(num_pages=200, max_positions=4000)
    request = make_request([1 + i % 511 for i in range(MAX_PREFILL_TOKENS + 100)])
    assert proposer.propose([asking(request, 2)])[0] == []
    assert proposer.propose([asking(request, 2)])[0] == plain_draft(request, 2)


def test_a_request_beyond_the_draft_models_context_gets_no_draft():
    proposer = make_proposer(max_positions=10)
    assert len(proposer.propose([asking(make_request([1] * 8), 5)])[0]) == 3
    assert len(proposer.propose([asking(make_request([1] * 10, 1), 5)])[0]) == 1
    assert proposer.propose([asking(make_request([1] * 11, 2), 5)])[0] == []


def test_requests_that_are_not_asked_about_give_up_their_pages():
    proposer = make_proposer(num_pages=2)
    first, second = make_request([1] * PAGE_SIZE * 2), make_request([2] * PAGE_SIZE, 1)
    assert proposer.propose([asking(first, 1)])[0]
    both = proposer.propose([asking(first, 1), asking(second, 1)])
    assert [len(draft) for draft in both] == [1, 0]
    assert proposer.propose([asking(second, 1)])[0]
    proposer.check_integrity()


def test_a_request_with_a_token_that_the_draft_model_does_not_have_gets_no_draft():
    proposer = make_proposer()
    asks = [asking(make_request([1, 550], 1), 4, 600), asking(make_request([1, 2], 2), 4)]
    assert [len(draft) for draft in proposer.propose(asks)] == [0, 4]
    proposer.check_integrity()


def test_a_draft_ends_where_the_settings_allow_nothing():
    """Only one token is allowed, and that is forbidden after itself."""
    proposer = make_proposer()
    request = make_request([1, 2], allowed_token_ids=(5,), bad_words=((5, 5),))
    draft = proposer.propose([asking(request, 4)])[0]
    assert draft == [5]

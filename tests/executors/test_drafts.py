"""Drafts that an executor writes in one call: those of a step for each token."""

import itertools
import math

import pytest

from paredown.engine.sampling.make_draw_settings import make_draw_settings
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.executors.core_sampler import CoreSampler
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.spec.kv import PAGE_SIZE

NUM_PAGES = 64
VOCAB_SIZE = 8192
PROMPTS = [[5, 9, 300], [7] * 40, [1 + 3 * i for i in range(17)], [8000]]
PARAMS = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.8, top_k=40, seed=1),
    SamplingParams(temperature=1.2, top_p=0.9, frequency_penalty=0.7, seed=2),
    SamplingParams(temperature=0.9, repetition_penalty=1.5, min_p=0.02, seed=3),
]


SAMPLER = CoreSampler.with_threads(1)


@pytest.fixture(scope="module")
def checkpoint():
    return Checkpoint.open(resolve_model("draft"))


@pytest.fixture(scope="module", params=["native", "torch"])
def executor(request, checkpoint):
    return loaded(checkpoint, request.param)


def loaded(checkpoint, executor_name, num_threads=1):
    options = RunOptions(
        executor=executor_name, num_pages=NUM_PAGES, threads=ThreadPlan.resolve(num_threads)
    )
    return load_executor(checkpoint, options)


def state_of(prompt, params, vocab_size=VOCAB_SIZE):
    settings = make_draw_settings(params, seed=params.seed or 0)
    return SAMPLER.make_state(settings, prompt, vocab_size)


def slices_of(prompts, num_draft_tokens):
    slices, first_page = [], 0
    for prompt, count in zip(prompts, num_draft_tokens, strict=True):
        last_page = first_page + -(-(len(prompt) + max(count - 1, 0)) // PAGE_SIZE)
        slices.append(SequenceSlice(prompt, 0, list(range(first_page, last_page)), int(count > 0)))
        first_page = last_page
    return slices


def one_by_one(executor, part, params, count):
    """A step and a draw for each token."""
    state, draft = state_of(part.token_ids, params), []
    logits = executor.step([part])
    while len(draft) < count:
        draft.append(executor.sampler.sample(logits, [state]).token_ids[0])
        start = len(part.token_ids) + len(draft) - 1
        if len(draft) < count:
            logits = executor.step([SequenceSlice(draft[-1:], start, part.pages, 1)])
    return draft


@pytest.mark.parametrize(("name", "num_threads"), [("native", 1), ("native", 2), ("torch", 1)])
def test_drafts_are_those_of_a_step_for_each_token(checkpoint, name, num_threads):
    executor = loaded(checkpoint, name, num_threads)
    for num_draft_tokens in ([4, 4, 4, 4], [1, 6, 0, 3], [0, 0, 0, 0]):
        slices = slices_of(PROMPTS, num_draft_tokens)
        work = list(zip(slices, PARAMS, num_draft_tokens, strict=True))
        expected = [one_by_one(executor, *one) for one in work]
        states = [state_of(part.token_ids, params) for part, params, _ in work]
        assert executor.write_drafts(slices, states, num_draft_tokens) == expected
        for (part, params, count), state, draft in zip(work, states, expected, strict=True):
            assert state.num_tokens == len(part.token_ids), "the state is left as it was"
            if count:
                logits = executor.step([part])
                fresh = state_of(part.token_ids, params)
                for one in (state, fresh):
                    assert executor.sampler.sample(logits, [one]).token_ids[0] == draft[0]


def test_a_draft_goes_on_where_the_last_one_ended(executor):
    """All of its draft tokens but the last one are computed."""
    params, prompt = PARAMS[1], PROMPTS[2]
    part = SequenceSlice(prompt, 0, [0, 1, 2], 1)
    whole = executor.write_drafts([part], [state_of(prompt, params)], [8])[0]
    first = executor.write_drafts([part], [state_of(prompt, params)], [5])[0]
    rest = SequenceSlice(first[-1:], len(prompt) + 4, [0, 1, 2], 1)
    second = executor.write_drafts([rest], [state_of(prompt + first, params)], [3])[0]
    assert first + second == whole


@pytest.mark.parametrize("vocab_size", [8000, 8200])
def test_paddings_of_the_vocabulary_may_differ(executor, vocab_size):
    params = SamplingParams(temperature=5.0, seed=4)
    drafts = []
    for seed, width in itertools.product(range(3), (vocab_size, VOCAB_SIZE)):
        state = SAMPLER.make_state(make_draw_settings(params, seed=seed), [5], width)
        part = SequenceSlice([5], 0, [0, 1, 2], 1)
        drafts.append(executor.write_drafts([part], [state], [32])[0])
        assert max(drafts[-1]) < min(vocab_size, VOCAB_SIZE) or width == VOCAB_SIZE
    if vocab_size > VOCAB_SIZE:
        assert drafts[0::2] == drafts[1::2]


def test_a_draft_ends_where_the_settings_allow_nothing(executor):
    params = SamplingParams(temperature=0, allowed_token_ids=(5,), bad_words=((5, 5),))
    prompts, counts = [[1, 2], [3]], [4, 4]
    states = [state_of(prompts[0], params), state_of(prompts[1], PARAMS[0])]
    short, full = executor.write_drafts(slices_of(prompts, counts), states, counts)
    assert (short, len(full)) == ([5], 4)
    assert states[0].num_tokens == 2


@pytest.mark.parametrize("name", ["native", "torch"])
def test_logits_that_are_no_numbers_are_an_error_and_leave_the_states(checkpoint, name):
    executor = loaded(checkpoint, name)
    if name == "native":
        executor._model._core.set_norm("final_norm", 0, [math.nan] * 128, [])
    else:
        executor._decoder.final_norm.weight.fill_(math.nan)
    state = state_of([1], PARAMS[1])
    with pytest.raises(RuntimeError, match="not finite"):
        executor.write_drafts([SequenceSlice([1], 0, [0], 1)], [state], [2])
    assert state.num_tokens == 1


def test_what_cannot_be_written_is_refused(executor):
    state, other = state_of([1], PARAMS[0]), state_of([1], PARAMS[0], vocab_size=100)

    def write(states, counts, *, num_tokens=1, pages=(0,), num_slices=1):
        part = SequenceSlice([1] * num_tokens, 0, list(pages), 1)
        executor.write_drafts([part] * num_slices, states, counts)

    with pytest.raises(ValueError, match="num_draft_tokens"):
        write([state], [-1])
    with pytest.raises(ValueError, match="pages"):
        write([state], [PAGE_SIZE + 1])
    with pytest.raises(ValueError, match="context"):
        write([state], [3], num_tokens=2047, pages=[0] * 200)
    with pytest.raises(ValueError, match="same state"):
        write([state, state], [1, 1], num_slices=2)
    with pytest.raises(ValueError, match="vocabular"):
        write([state, other], [1, 1], num_slices=2)
    with pytest.raises(ValueError, match="for each slice"):
        write([state, state_of([1], PARAMS[0])], [1])
    with pytest.raises(ValueError, match="outside the vocabulary"):
        executor.write_drafts([SequenceSlice([VOCAB_SIZE], 0, [0], 1)], [state], [1])
    assert state.num_tokens == 1

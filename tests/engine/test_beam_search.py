"""Beam search over the engine against a naive one over whole sequences of the toy model, and, where
the beams hold every sequence, against all there are."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.toy_executor import EOS, ToyExecutor, ToyTokenizer, reference_logits, toy_spec
from paredown.engine.engine import Engine
from paredown.engine.llm import LLM
from paredown.engine.sampling.beam_search import BeamSearchParams, beam_search
from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.errors import RequestError
from references.sampling import reference_logprobs


def make_engine(*, vocab_size=512, failing_steps=frozenset(), num_pages=64, **limits):
    spec = toy_spec(vocab_size=vocab_size, max_positions=96)
    executor = ToyExecutor(spec=spec, num_pages=num_pages, failing_steps=failing_steps)
    return Engine(executor, ToyTokenizer(), ScheduleConfig(**limits))


def naive_beam_search(prompt, params, vocab_size):
    """Every continuation of every beam, sorted; as docs/internals/sampling.md says it. And whether
    rounding decides, so near are what was kept and what was not: on the way, and at the end."""
    live, finished, is_tied = [(0.0, ())], [], False

    def best(paths, num_kept):
        nonlocal is_tied
        ordered = sorted(paths, key=lambda one: (-one[0], one[1]))
        border = ordered[num_kept - 1 : num_kept + 1]
        is_tied |= len(border) == 2 and border[0][0] - border[1][0] < 1e-9
        return ordered[:num_kept]

    for length in range(1, params.max_tokens + 1):
        every = []
        for logprob, tokens in live:
            row = reference_logprobs(reference_logits([*prompt, *tokens], vocab_size).tolist())
            every += [(logprob + row[token], (*tokens, token)) for token in range(vocab_size)]
        every = best(every, 2 * params.num_beams)
        is_last = length == params.max_tokens
        ended = [one for one in every if is_last or (one[1][-1] == EOS and not params.ignore_eos)]
        live = best([one for one in every if one not in ended], params.num_beams)
        finished += [(logprob / length**params.length_penalty, tokens) for logprob, tokens in ended]
    was_tied, is_tied = is_tied, False
    return best(finished, params.num_beams), was_tied, is_tied


def logprob_of(prompt, tokens, vocab_size):
    rows = [reference_logits([*prompt, *tokens[:i]], vocab_size) for i in range(len(tokens))]
    return sum(
        reference_logprobs(row.tolist())[token] for row, token in zip(rows, tokens, strict=True)
    )


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.integers(1, 11), min_size=1, max_size=20),
    st.builds(
        BeamSearchParams,
        num_beams=st.integers(1, 5),
        max_tokens=st.integers(1, 6),
        length_penalty=st.sampled_from([-1.0, 0.0, 0.6, 1.0, 2.0]),
        ignore_eos=st.booleans(),
    ),
    st.sampled_from([1, 2, 64]),
)
def test_beam_search_is_the_naive_one(prompt, params, max_running):
    engine = make_engine(vocab_size=12, max_running=max_running)
    found = beam_search(engine, prompt, params)
    expected, was_tied, is_tied = naive_beam_search(prompt, params, 12)
    if not was_tied:
        assert [one.score for one in found] == pytest.approx([score for score, _ in expected])
    if not was_tied and not is_tied:
        assert {one.token_ids for one in found} == {tokens for _, tokens in expected}
    assert len({one.token_ids for one in found}) == len(found) == len(expected)
    for one in found:
        assert one.logprob == pytest.approx(logprob_of(prompt, one.token_ids, 12))
        is_end = one.token_ids[-1] == EOS and not params.ignore_eos
        assert one.finish_reason == ("stop" if is_end else "length")
        assert one.score == one.logprob / len(one.token_ids) ** params.length_penalty
    assert not engine.has_work


@pytest.mark.parametrize("length_penalty", [-0.5, 0.0, 1.0, 1.7])
@pytest.mark.parametrize("prompt", [[1], [2, 3], [3, 3, 1]])
def test_wide_beams_find_the_best_of_all_sequences(prompt, length_penalty):
    """Of 4 tokens, one of which ends: 10 beams hold every live sequence of 2 tokens."""
    every = []
    for length in (1, 2, 3):
        for tokens in itertools.product(range(4), repeat=length):
            if EOS in tokens[:-1] or (length < 3 and tokens[-1] != EOS):
                continue
            logprob = sum(
                reference_logprobs(reference_logits([*prompt, *tokens[:i]], 4).tolist())[token]
                for i, token in enumerate(tokens)
            )
            every.append((logprob / length**length_penalty, tokens))
    every.sort(key=lambda one: (-one[0], one[1]))
    params = BeamSearchParams(num_beams=10, max_tokens=3, length_penalty=length_penalty)
    found = beam_search(make_engine(vocab_size=4), prompt, params)
    assert [one.token_ids for one in found] == [tokens for _, tokens in every[:10]]
    assert [one.score for one in found] == pytest.approx([score for score, _ in every[:10]])


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_a_beam_computes_its_last_token_only(prefix_cache):
    engine = make_engine(prefix_cache=prefix_cache)
    step, num_tokens = engine.executor.step, []

    def counted(slices):
        num_tokens.append(sum(len(one.token_ids) for one in slices))
        return step(slices)

    engine.executor.step = counted
    params = BeamSearchParams(num_beams=8, max_tokens=30, ignore_eos=True, length_penalty=0.0)
    beam_search(engine, [5, 6] * 30, params)
    assert num_tokens == [60, *[8] * (len(num_tokens) - 1)]
    assert len(num_tokens) > 1
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_pages
    engine.check_integrity()


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("max_step_tokens", [3, 512])
@pytest.mark.parametrize("num_pages", [3, 4, 7])
def test_beams_that_find_few_pages_are_the_same(num_pages, max_step_tokens, prefix_cache):
    params = BeamSearchParams(num_beams=5, max_tokens=14, ignore_eos=True)
    prompt = [5, 6] * 14
    engine = make_engine(
        num_pages=num_pages, max_step_tokens=max_step_tokens, prefix_cache=prefix_cache
    )
    found = beam_search(engine, prompt, params)
    assert found == beam_search(make_engine(), prompt, params)
    if num_pages == 4 and max_step_tokens > 3:  # no more run than a step has tokens
        assert engine.scheduler.num_preemptions
    assert engine.scheduler.pool.num_free == num_pages
    engine.check_integrity()


def test_a_search_that_is_given_up_leaves_nothing_behind():
    engine = make_engine()
    step = engine.step
    calls = []

    def stopping():
        calls.append(None)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return step()

    engine.step = stopping
    with pytest.raises(KeyboardInterrupt):
        beam_search(engine, [5] * 20, BeamSearchParams())
    assert not engine.has_work
    assert not engine.scheduler.parked
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_pages
    engine.check_integrity()


def test_the_context_ends_the_search():
    found = beam_search(make_engine(), [5] * 93, BeamSearchParams(num_beams=2, max_tokens=9))
    assert {len(one.token_ids) for one in found if one.finish_reason == "length"} == {3}


def test_a_failing_model_is_told_and_leaves_an_idle_engine():
    engine = make_engine(failing_steps=frozenset({3}))
    with pytest.raises(RequestError, match="injected failure"):
        beam_search(engine, [5, 6], BeamSearchParams())
    assert not engine.has_work
    assert beam_search(engine, [5, 6], BeamSearchParams(max_tokens=2))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_beams", 0),
        ("num_beams", 11),
        ("max_tokens", 0),
        ("length_penalty", float("nan")),
        ("length_penalty", 11),
        ("ignore_eos", None),
    ],
)
def test_senseless_parameters_are_refused(field, value):
    with pytest.raises(ParameterError, match=field):
        BeamSearchParams(**{field: value})


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_one_beam_on_the_default_model_is_greedy_and_more_are_likelier(executor):
    llm = LLM(None, num_pages=64, num_threads=1, executor=executor)
    prompt = "It was late in the"
    greedy = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=8, logprobs=0))[0]
    one = llm.beam_search(prompt, BeamSearchParams(num_beams=1, max_tokens=8))[0]
    assert one.token_ids == greedy.token_ids
    assert one.text == greedy.text
    assert one.logprob == pytest.approx(sum(row.chosen.logprob for row in greedy.logprobs))
    four = llm.beam_search(prompt, BeamSearchParams(num_beams=4, max_tokens=8))
    assert len(four) == 4
    assert four[0].score >= one.score
    assert [beam.score for beam in four] == sorted((beam.score for beam in four), reverse=True)

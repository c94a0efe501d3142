"""An engine that speculates gives the answers of the plain loop, whoever proposes whatever."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.toy_executor import ToyExecutor, ToyTokenizer, reference_logits, toy_spec
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.draft_model import DraftModelProposer
from paredown.engine.speculate.ngram import NgramProposer
from paredown.engine.speculate.reference_text import ReferenceTextProposer
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.engine.speculate.suffix_cache import SuffixCacheProposer
from paredown.spec.kv import PAGE_SIZE
from references.plain_loop import plain_loop
from references.sampling import reference_draw, reference_probabilities

MAX_POSITIONS = 96
SPEC = toy_spec(max_positions=MAX_POSITIONS)
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


class OracleProposer:
    """Knows the answer and is wrong now and then: long accepted runs, and ends inside them."""

    def __init__(self, share_wrong=0.2):
        self._random = random.Random(0)
        self._share_wrong = share_wrong

    def propose(self, asks):
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask):
        # A request of its own, without an end, to be continued by the plain loop.
        params = replace(
            ask.request.params,
            stop=(),
            seed=(ask.request.seed + 2**63) % 2**64 - 2**63,
            max_tokens=self._random.randint(1, ask.max_tokens),
        )
        tokens = plain_loop(
            ask.request.token_ids, params, vocab_size=SPEC.vocab_size, max_total_tokens=1000
        )[0]
        wrong = [self._random.random() < self._share_wrong for _ in tokens]
        return [511 if bad else one for one, bad in zip(tokens, wrong, strict=True)]

    def forget(self, request):
        pass


def draft_proposer():
    """The target itself, with few pages, so that it sometimes has no draft."""
    return DraftModelProposer(ToyExecutor(num_pages=10, spec=SPEC))


PROPOSERS = {
    "ngram": lambda: NgramProposer(min_match=1),
    "reference": lambda: ReferenceTextProposer([list(range(1, 512)) * 2], min_match=1),
    "suffix": lambda: SuffixCacheProposer(min_match=1, max_cached_tokens=60),
    "draft": draft_proposer,
    "oracle": OracleProposer,
}

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.8]),
    top_k=st.sampled_from([None, 4]),
    top_p=st.sampled_from([1.0, 0.9]),
    seed=st.integers(0, 99),
    max_tokens=st.sampled_from([1, 2, 17, 40, None]),
    stop_token_ids=st.sampled_from([(), tuple(range(1, 60))]),
    logprobs=st.sampled_from([None, 0, 2]),
    stop=st.sampled_from([(), (" of",), (" the of",)]),
    repetition_penalty=st.sampled_from([1.0, 1.4]),
    frequency_penalty=st.sampled_from([0.0, 0.6]),
    min_tokens=st.sampled_from([0, 1]),
    min_p=st.sampled_from([0.0, 0.13]),
    bad_words=st.sampled_from([(), ((3,), (7, 9))]),
)
PROMPTS = st.lists(st.integers(1, 511), min_size=1, max_size=50)
CONFIGS = st.builds(
    ScheduleConfig,
    max_step_tokens=st.sampled_from([1, 3, 16, 64, 512]),
    max_running=st.sampled_from([1, 2, 8]),
    max_waiting=st.just(50),
)
SPECULATIONS = st.builds(
    SpeculationConfig,
    kind=st.just("ngram"),
    max_draft_tokens=st.sampled_from([1, 3, 8]),
    is_adaptive=st.booleans(),
)


def make_engine(proposer, *, num_pages=64, config=None, speculation=None, failing=frozenset()):
    if speculation is None:
        speculation = SpeculationConfig(kind="ngram", max_draft_tokens=4, is_adaptive=False)
    executor = ToyExecutor(num_pages=num_pages, spec=SPEC, failing_steps=failing)
    return Engine(executor, ToyTokenizer(), config, Speculator(proposer, speculation))


def run_to_end(engine, max_steps=20_000):
    outputs = {}
    for _ in range(max_steps):
        if not engine.has_work:
            return outputs
        for output in engine.step():
            outputs.setdefault(output.request.id, []).append(output)
        engine.check_integrity()
    raise AssertionError("the engine does not come to an end")


def answer(outputs):
    tokens = [token for one in outputs for token in one.token_ids]
    logprobs = [row.chosen.logprob for one in outputs for row in one.logprobs]
    return tokens, "".join(one.text for one in outputs), outputs[-1].finish_reason, logprobs


@pytest.mark.parametrize("name", PROPOSERS)
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(PROMPTS, PARAMS), min_size=1, max_size=5),
    CONFIGS,
    SPECULATIONS,
    st.integers(4, 20),
)
def test_every_answer_is_the_plain_loops(name, work, config, speculation, num_pages):
    engine = make_engine(
        PROPOSERS[name](), num_pages=num_pages, config=config, speculation=speculation
    )
    requests = [engine.submit(prompt, params) for prompt, params in work]
    outputs = run_to_end(engine)
    assert engine.speculator.stats.failure is None
    assert engine.scheduler.pool.num_free == num_pages
    for (prompt, params), request in zip(work, requests, strict=True):
        tokens, text, reason, logprobs = answer(outputs[request.id])
        expected = plain_loop(
            prompt,
            params,
            vocab_size=SPEC.vocab_size,
            max_total_tokens=min(MAX_POSITIONS, num_pages * PAGE_SIZE),
        )
        assert (tokens, text, reason) == expected[:3]
        if params.logprobs is not None:
            assert logprobs == pytest.approx(expected[3])
        assert request.token_ids == prompt + tokens


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), PROMPTS, PARAMS),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("step"), st.integers(1, 4)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("name", PROPOSERS)
@settings(max_examples=40, deadline=None)
@given(OPERATIONS, CONFIGS, st.integers(4, 12), st.frozensets(st.integers(1, 30), max_size=2))
def test_random_operations_answer_every_request_once(name, operations, config, num_pages, failing):
    engine = make_engine(PROPOSERS[name](), num_pages=num_pages, config=config, failing=failing)
    submitted, last = [], Counter()
    for operation in [*operations, ("step", 10_000)]:
        if operation[0] == "submit":
            submitted.append(engine.submit(operation[1], operation[2]).id)
        elif operation[0] == "cancel":
            engine.cancel(operation[1])
            engine.check_integrity()
        for _ in range(operation[1] if operation[0] == "step" else 0):
            if not engine.has_work:
                break
            last.update(one.request.id for one in engine.step() if one.finish_reason is not None)
            engine.check_integrity()
    assert last == Counter(submitted)
    assert engine.scheduler.pool.num_free == num_pages


def test_a_perfect_draft_model_gives_all_its_tokens_and_one_more():
    engine = make_engine(draft_proposer())
    params = SamplingParams(temperature=0.8, seed=1, max_tokens=31, ignore_eos=True)
    request = engine.submit([5, 6], params)
    outputs = run_to_end(engine)[request.id]
    assert [len(one.token_ids) for one in outputs] == [1, 5, 5, 5, 5, 5, 5]
    stats = engine.speculator.stats
    assert stats.num_proposed == stats.num_accepted == [6, 6, 6, 6]
    assert (stats.acceptance, stats.acceptance_rate) == (1.0, 1.0)
    assert (stats.num_tested, stats.tokens_per_step) == (24, 31 / 7)


def test_no_draft_token_stands_at_or_beyond_the_last_token():
    engine = make_engine(OracleProposer(share_wrong=0))
    seen = []
    step = engine.executor.step

    def note(slices):
        seen.extend(one.start + len(one.token_ids) for one in slices)
        return step(slices)

    engine.executor.step = note
    request = engine.submit([5] * 90, SamplingParams(temperature=0, ignore_eos=True))
    run_to_end(engine)
    assert request.num_tokens == MAX_POSITIONS
    assert max(seen) == MAX_POSITIONS - 1


def test_a_stop_inside_an_accepted_run_ends_it_there():
    engine = make_engine(OracleProposer(share_wrong=0))
    whole = engine.submit([9], GREEDY)
    text = answer(run_to_end(engine)[whole.id])[1]
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    stopped = engine.submit([9], SamplingParams(temperature=0, max_tokens=40, stop=(stop,)))
    outputs = run_to_end(engine)[stopped.id]
    _, found, reason, _ = answer(outputs)
    assert (found, reason) == (text[: text.find(stop)], "stop")
    assert stopped.num_tokens < whole.num_tokens
    token = whole.token_ids[9]
    by_token = engine.submit([9], SamplingParams(temperature=0, stop_token_ids=(token,)))
    run_to_end(engine)
    assert by_token.token_ids == whole.token_ids[: whole.token_ids.index(token, 1) + 1]


def test_the_end_of_text_inside_an_accepted_run_ends_it_there():
    class EosProposer(OracleProposer):
        def _propose(self, ask):
            return [*super()._propose(ask), 3][: ask.max_tokens]

    params = SamplingParams(temperature=0, max_tokens=None, seed=0)
    engine = make_engine(EosProposer(share_wrong=0))
    found = None
    for first in range(1, 300):
        expected = plain_loop(
            [first], params, vocab_size=SPEC.vocab_size, max_total_tokens=MAX_POSITIONS
        )
        request = engine.submit([first], params)
        outputs = run_to_end(engine)[request.id]
        assert answer(outputs)[:3] == expected[:3]
        if expected[2] == "stop" and len(outputs[-1].token_ids) > 1:
            found = outputs
            break
    assert found is not None


def test_a_proposer_that_fails_costs_no_request(caplog):
    class FailingProposer(OracleProposer):
        def propose(self, asks):
            raise RuntimeError("no idea")

    engine = make_engine(FailingProposer())
    request = engine.submit([5], GREEDY)
    tokens = answer(run_to_end(engine)[request.id])[0]
    assert len(tokens) == 40
    assert engine.speculator.stats.failure == "RuntimeError: no idea"
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1


def test_nan_after_a_rejected_draft_token_harms_nobody_and_after_an_accepted_one_ends_the_request():
    for share_wrong, reason in ((1.0, "length"), (0.0, "error")):
        engine = make_engine(OracleProposer(share_wrong))
        healthy_step = engine.executor.step

        def step(slices, healthy_step=healthy_step):
            logits = healthy_step(slices)
            if sum(one.num_logits for one in slices) > 1:
                logits[1] = np.nan
            return logits

        engine.executor.step = step
        request = engine.submit([5], GREEDY)
        outputs = run_to_end(engine)[request.id]
        assert outputs[-1].finish_reason == reason
        expected = plain_loop([5], GREEDY, vocab_size=512, max_total_tokens=MAX_POSITIONS)[0]
        found = answer(outputs)[0]
        # What came true before the failure is told: the first token and the first accepted draft
        # token.
        assert found == (expected if reason == "length" else expected[:2])


def test_cancelled_inside_a_run_of_draft_tokens():
    engine = make_engine(draft_proposer())
    request, other = engine.submit([5] * 20, GREEDY), engine.submit([6] * 20, GREEDY)
    for _ in range(3):
        engine.step()
    assert engine.cancel(request.id)
    engine.check_integrity()
    outputs = run_to_end(engine)
    assert outputs[request.id][-1].finish_reason == "cancelled"
    assert len(other.token_ids) == 60
    engine.speculator.proposer.check_integrity()
    assert engine.speculator.proposer._pool.num_free == 10


class HotProposer(OracleProposer):
    """Draws from the target's distribution at another temperature, with the request's noise."""

    def _propose(self, ask):
        request, draft = ask.request, []
        hot = SamplingParams(temperature=3.0, top_k=6)
        for position in range(len(request.token_ids), len(request.token_ids) + ask.max_tokens):
            logits = reference_logits(request.token_ids + draft, SPEC.vocab_size)
            q = reference_probabilities(logits, hot)
            draft.append(reference_draw(q, request.seed, position))
        return draft


@pytest.mark.parametrize("proposer", [OracleProposer(share_wrong=0.5), HotProposer()])
def test_draft_tokens_keep_the_distribution(proposer):
    """Chi-square of the second draft token, over seeds, given the same token before it."""
    speculation = SpeculationConfig(kind="draft", max_draft_tokens=2, is_adaptive=False)
    engine = make_engine(proposer, speculation=speculation)
    first_counts, counts, num_requests = Counter(), Counter(), 3000
    for seed in range(num_requests):
        params = SamplingParams(temperature=1.0, top_k=4, seed=seed, max_tokens=4, ignore_eos=True)
        request = engine.submit([5], params)
        run_to_end(engine)
        first_counts[tuple(request.token_ids[1:3])] += 1
        counts[tuple(request.token_ids[1:4])] += 1
    first, num_first = first_counts.most_common(1)[0]
    logits = reference_logits([5, *first], SPEC.vocab_size)
    p = np.array(reference_probabilities(logits, SamplingParams(temperature=1.0, top_k=4)))
    expected = {(*first, int(token)): num_first * p[token] for token in np.flatnonzero(p)}
    assert sum(counts[one] for one in expected) == num_first
    chi_square = sum((counts[one] - expected[one]) ** 2 / expected[one] for one in expected)
    assert chi_square < 16.3  # the 99.9 % point for 3 degrees of freedom
    assert 0.1 < engine.speculator.stats.acceptance < 0.9

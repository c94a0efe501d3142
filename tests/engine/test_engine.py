from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.toy_executor import ToyExecutor, ToyTokenizer, toy_spec
from paredown.engine.engine import Engine
from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.errors import CapacityError, ConfigError, RequestError
from paredown.spec.kv import PAGE_SIZE
from references.plain_loop import plain_loop

MAX_POSITIONS = 96
SPEC = toy_spec(max_positions=MAX_POSITIONS)
GREEDY = SamplingParams(temperature=0, max_tokens=8)

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
    n=st.sampled_from([1, 1, 3]),
    prompt_logprobs=st.sampled_from([None, None, 0]),
)
PROMPTS = st.lists(st.integers(1, 511), min_size=1, max_size=50)
CONFIGS = st.builds(
    ScheduleConfig,
    max_step_tokens=st.sampled_from([1, 3, 16, 64, 512]),
    max_running=st.sampled_from([1, 2, 8]),
    max_waiting=st.just(100),
    prefix_cache=st.booleans(),
)


def make_engine(*, num_pages=64, config=None, failing_steps=frozenset(), spec=SPEC):
    executor = ToyExecutor(num_pages=num_pages, spec=spec, failing_steps=failing_steps)
    return Engine(executor, ToyTokenizer(), config)


def run_to_end(engine, max_steps=20_000, before_step=lambda: None):
    """Outputs by request id, integrity checked after every step."""
    outputs = {}
    for _ in range(max_steps):
        if not engine.has_work:
            return outputs
        before_step()
        for output in engine.step():
            outputs.setdefault(output.request.id, []).append(output)
        engine.check_integrity()
    raise AssertionError("the engine does not come to an end")


def answer(outputs):
    assert [one.finish_reason is None for one in outputs] == [True] * (len(outputs) - 1) + [False]
    tokens = [token for one in outputs for token in one.token_ids]
    logprobs = [row.chosen.logprob for one in outputs for row in one.logprobs]
    return tokens, "".join(one.text for one in outputs), outputs[-1].finish_reason, logprobs


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(PROMPTS, PARAMS), min_size=1, max_size=5), CONFIGS, st.integers(4, 20))
def test_every_batch_chunk_and_preemption_gives_the_plain_loops_answer(work, config, num_pages):
    engine = make_engine(num_pages=num_pages, config=config)
    choices = [
        (prompt, params.choice(i), request)
        for prompt, params in work
        for i, request in enumerate(engine.submit_many(prompt, params))
    ]
    outputs = run_to_end(engine)
    assert engine.scheduler.pool.num_free == num_pages
    for prompt, params, request in choices:
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
        if params.prompt_logprobs is not None:
            scores = [row for one in outputs[request.id] for row in one.prompt_logprobs]
            assert [one.chosen.token_id for one in scores] == prompt[1:]
        assert request.token_ids == prompt + tokens
        assert request.arrival_s <= request.first_step_s <= request.first_token_s
        assert request.first_token_s <= request.finish_s


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(PROMPTS, PARAMS), min_size=1, max_size=5),
    CONFIGS,
    st.integers(4, 12),
    st.randoms(use_true_random=False),
)
def test_dropped_drafts_change_no_answer(work, config, num_pages, random):
    engine = make_engine(num_pages=num_pages, config=config)
    requests = [engine.submit(prompt, params) for prompt, params in work]

    def draft():
        engine.scheduler.expect_drafts()
        for one in engine.scheduler.running:
            room = one.max_total_tokens - one.num_tokens - 1
            one.draft_token_ids = random.choices(range(512), k=min(random.randrange(20), room))

    outputs = run_to_end(engine, before_step=draft)
    assert engine.scheduler.pool.num_free == num_pages
    for (prompt, params), request in zip(work, requests, strict=True):
        expected = plain_loop(
            prompt,
            params,
            vocab_size=SPEC.vocab_size,
            max_total_tokens=min(MAX_POSITIONS, num_pages * PAGE_SIZE),
        )
        assert answer(outputs[request.id])[:3] == expected[:3]


def test_what_a_step_told_stays_as_it_was():
    """A server's event loop may still read it while the next step runs."""
    engine = make_engine()
    requests = [engine.submit([5 + i], SamplingParams(temperature=0)) for i in range(3)]
    told = []
    for number in range(12):
        if number == 9:
            engine.cancel(requests[0].id)
        for one in engine.step():
            told.append((one, replace(one, token_ids=list(one.token_ids))))
    assert len(told) >= 30
    assert all(one == then for one, then in told)


def test_drafts_are_computed_where_the_step_has_room():
    engine = make_engine(config=ScheduleConfig(max_step_tokens=8))
    first, second = engine.submit([5], GREEDY), engine.submit([6], GREEDY)
    engine.step()
    first.draft_token_ids, second.draft_token_ids = [1] * 20, [2] * 3
    engine.scheduler.expect_drafts()
    # 1 + 6 drafts leave the second request its one token.
    assert engine.scheduler.schedule().chunks == [(first, 7), (second, 1)]
    assert (first.draft_token_ids, second.draft_token_ids) == ([1] * 6, [])
    part = engine._active[first.id].begin(7, 0)
    assert (part.token_ids, part.num_logits) == ([first.token_ids[-1], *[1] * 6], 7)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), PROMPTS, PARAMS),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("step"), st.integers(1, 6)),
    ),
    max_size=40,
)


@settings(max_examples=120, deadline=None)
@given(OPERATIONS, CONFIGS, st.integers(4, 12), st.frozensets(st.integers(1, 40), max_size=3))
def test_random_operations_answer_every_request_once(operations, config, num_pages, failing):
    engine = make_engine(num_pages=num_pages, config=config, failing_steps=failing)
    submitted, last = [], {}

    def note(outputs):
        for output in outputs:
            assert output.request.id not in last, "nothing comes after the last output"
            if output.finish_reason is not None:
                last[output.request.id] = output.finish_reason
                assert (output.error is not None) == (output.finish_reason == "error")

    for operation in operations:
        if operation[0] == "submit":
            submitted += [one.id for one in engine.submit_many(operation[1], operation[2])]
        elif operation[0] == "cancel":
            is_alive = operation[1] in submitted and operation[1] not in last
            was_cancelled = engine.cancel(operation[1])
            assert was_cancelled <= is_alive
            engine.check_integrity()
        else:
            for _ in range(operation[1]):
                note(engine.step())
                engine.check_integrity()
    while engine.has_work:
        note(engine.step())
        engine.check_integrity()
    assert sorted(last) == submitted
    assert engine.scheduler.pool.num_free == num_pages


def test_pages_that_run_out_preempt_the_newest_and_lose_nothing():
    engine = make_engine(num_pages=6)
    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    requests = [engine.submit([7 + i] * 20, params) for i in range(3)]
    outputs = run_to_end(engine)
    assert requests[0].num_preemptions == 0
    assert requests[2].num_preemptions > 0
    assert [len(answer(outputs[one.id])[0]) for one in requests] == [60, 60, 60]
    assert [one.finish_s for one in requests] == sorted(one.finish_s for one in requests)


def test_a_long_prompt_does_not_stop_a_running_request():
    engine = make_engine(config=ScheduleConfig(max_step_tokens=4))
    first = engine.submit([5], SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    engine.step()
    engine.submit([6] * 80, GREEDY)
    for num_steps in range(1, 20):
        outputs = engine.step()
        assert first.num_generated_tokens == 1 + num_steps
        assert outputs


def test_cancel_frees_the_pages_at_once_and_is_answered_by_the_next_step():
    engine = make_engine()
    request = engine.submit([5] * 40, GREEDY)
    waiting = engine.submit([6] * 40, GREEDY)
    engine.step()
    assert engine.scheduler.pool.num_free < 64
    assert engine.cancel(request.id)
    assert engine.cancel(waiting.id)
    assert engine.scheduler.pool.num_free == 64
    assert not engine.cancel(request.id)
    assert not engine.cancel(999)
    outputs = engine.step()
    assert [one.finish_reason for one in outputs] == ["cancelled", "cancelled"]
    assert not engine.has_work


def test_a_failing_step_ends_its_requests_and_the_engine_lives():
    engine = make_engine(failing_steps=frozenset({2}), config=ScheduleConfig(max_running=1))
    failed, spared = engine.submit([5] * 3, GREEDY), engine.submit([6] * 3, GREEDY)
    outputs = run_to_end(engine)
    assert outputs[failed.id][-1].finish_reason == "error"
    assert "RuntimeError: injected failure" in outputs[failed.id][-1].error
    assert len(answer(outputs[spared.id])[0]) == 8
    again = engine.submit([5] * 3, GREEDY)
    assert len(answer(run_to_end(engine)[again.id])[0]) == 8


def test_nan_logits_end_one_request_only():
    engine = make_engine()
    healthy_step = engine.executor.step

    def step(slices):
        logits = healthy_step(slices)
        logits[0] = float("nan")
        return logits

    engine.executor.step = step
    failed, spared = engine.submit([5], GREEDY), engine.submit([6], GREEDY)
    outputs = engine.step()
    assert [(one.request, one.finish_reason) for one in outputs] == [
        (failed, "error"),
        (spared, None),
    ]
    engine.check_integrity()


def test_what_can_never_be_served_is_refused_with_both_numbers():
    engine = make_engine()
    with pytest.raises(RequestError, match=f"96 prompt tokens, a context of {MAX_POSITIONS}"):
        engine.submit([1] * 96, GREEDY)
    with pytest.raises(RequestError, match="empty"):
        engine.submit([], GREEDY)
    with pytest.raises(CapacityError, match="2 pages x 16 tokens = 32"):
        make_engine(num_pages=2).submit([1] * 32, GREEDY)
    for token_id in (-1, 512, 10**30):
        with pytest.raises(RequestError, match="0 to 511"):
            engine.submit([3, token_id], GREEDY)
    with pytest.raises(ParameterError, match="stop_token_ids"):
        engine.submit([3], SamplingParams(stop_token_ids=(512,)))
    assert not engine.has_work


@pytest.mark.parametrize(
    ("prompt", "seen"),
    [
        ([1.5] * 20, "1.5"),
        ([1, float("nan")] * 20, "nan"),
        ([3, None], "None"),
        ([3, "4"], "'4'"),
        ([3, [4]], "[4]"),
        ([3, 10**5000], "an integer of about 5,001 digits"),
        ([3, -(2**40)], str(-(2**40))),
        (np.array([3.0, 4.0]), "3.0"),
        (5, "5"),
        (None, "None"),
    ],
)
def test_what_is_no_token_id_is_refused_and_leaves_nothing_behind(prompt, seen):
    engine = make_engine()
    for submit in (engine.submit, engine.submit_many):
        with pytest.raises(RequestError) as caught:
            submit(prompt, GREEDY)
        assert seen in str(caught.value.seen)
    assert not engine.has_work
    engine.check_integrity()
    request = engine.submit(np.array([3, 4]), GREEDY)
    assert len(answer(run_to_end(engine)[request.id])[0]) == 8
    assert {type(one) for one in request.token_ids} == {int}


def test_a_request_that_cannot_be_made_is_not_queued(monkeypatch):
    engine = make_engine()

    def fail(token_ids):
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(engine.tokenizer, "decode", fail)
        with pytest.raises(MemoryError):
            engine.submit([3, 4], GREEDY)
    assert not engine.has_work
    engine.check_integrity()
    request = engine.submit([3, 4], GREEDY)
    assert len(answer(run_to_end(engine)[request.id])[0]) == 8


def test_the_longest_prompt_gets_one_token():
    engine = make_engine()
    request = engine.submit([1] * 95, SamplingParams(temperature=0, ignore_eos=True))
    tokens, _, reason, _ = answer(run_to_end(engine)[request.id])
    assert (len(tokens), reason) == (1, "length")


def test_the_waiting_queue_is_bounded():
    engine = make_engine(config=ScheduleConfig(max_waiting=2))
    engine.submit([1], GREEDY)
    engine.submit([1], GREEDY)
    with pytest.raises(QueueFullError, match="2 waiting of at most 2"):
        engine.submit([1], GREEDY)
    engine.step()
    engine.submit([1], GREEDY)
    assert len(run_to_end(engine)) == 3


def test_stop_strings_end_the_answer_before_themselves():
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    engine = make_engine()
    request = engine.submit([9], params)
    whole = answer(run_to_end(engine)[request.id])[1]
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    stopped = engine.submit([9], SamplingParams(temperature=0, max_tokens=40, stop=(stop,)))
    _, text, reason, _ = answer(run_to_end(engine)[stopped.id])
    assert (text, reason) == (whole[: whole.find(stop)], "stop")


def test_without_a_seed_two_requests_differ():
    engine = make_engine()
    params = SamplingParams(temperature=2.0, max_tokens=40, ignore_eos=True)
    first, second = engine.submit([3], params), engine.submit([3], params)
    run_to_end(engine)
    assert first.token_ids != second.token_ids


@pytest.mark.parametrize("field", ["max_step_tokens", "max_running", "max_waiting"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_senseless_limit_is_refused(field, value):
    with pytest.raises(ConfigError, match=field):
        ScheduleConfig(**{field: value})

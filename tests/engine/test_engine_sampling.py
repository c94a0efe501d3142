"""What the engine adds to sampling: n answers, scored prompts, filters, stops after min_tokens."""

import sys

import numpy as np
import pytest

from fakes.toy_executor import EOS, ToyExecutor, ToyTokenizer, reference_logits, toy_spec
from paredown.engine.engine import Engine
from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.policies.fair_shares import GENERATED_WEIGHT
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.engine.schedule.service import Service
from paredown.engine.schedule.step_plan import StepPlan
from references.sampling import reference_logprobs

SPEC = toy_spec(max_positions=96)


def make_engine(*, num_pages=64, **limits):
    executor = ToyExecutor(num_pages=num_pages, spec=SPEC)
    return Engine(executor, ToyTokenizer(), ScheduleConfig(**limits))


def run_to_end(engine):
    """All outputs of each request, by its id."""
    outputs = {}
    while engine.has_work:
        for output in engine.step():
            outputs.setdefault(output.request.id, []).append(output)
        engine.check_integrity()
    return outputs


def test_n_answers_are_those_of_seed_plus_number():
    params = SamplingParams(n=3, seed=2**63 - 2, temperature=1.5, max_tokens=12, ignore_eos=True)
    engine = make_engine()
    together = engine.submit_many([5, 6], params)
    seeds = [2**63 - 2, 2**63 - 1, -(2**63)]
    assert [one.params.seed for one in together] == seeds
    alone = [
        engine.submit(
            [5, 6], SamplingParams(seed=s, temperature=1.5, max_tokens=12, ignore_eos=True)
        )
        for s in seeds
    ]
    run_to_end(engine)
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert len({tuple(one.token_ids) for one in together}) == 3


def test_n_answers_are_queued_together_or_not_at_all():
    engine = make_engine(max_waiting=3)
    engine.submit([1], SamplingParams(max_tokens=2))
    with pytest.raises(QueueFullError):
        engine.submit_many([1], SamplingParams(n=3))
    assert engine.num_unfinished == 1
    assert len(engine.submit_many([1], SamplingParams(n=2, max_tokens=2))) == 2


@pytest.mark.parametrize("max_step_tokens", [7, 512])
@pytest.mark.parametrize("prompt_logprobs", [None, 1])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_n_answers_compute_their_prompt_once(prefix_cache, prompt_logprobs, max_step_tokens):
    prompt = list(range(1, 51))
    params = SamplingParams(
        n=4,
        seed=1,
        temperature=1.5,
        max_tokens=3,
        ignore_eos=True,
        prompt_logprobs=prompt_logprobs,
    )
    engine = make_engine(prefix_cache=prefix_cache, max_step_tokens=max_step_tokens)
    num_tokens = count_tokens(engine)
    requests = engine.submit_many(prompt, params)
    outputs = run_to_end(engine)
    assert sum(num_tokens) == 50 + 4 * 2
    assert [one.num_cached_tokens for one in requests] == [0, 50, 50, 50]
    assert all(len(one.token_ids) == 53 for one in requests)
    assert all(one.first_step_s <= one.first_token_s for one in requests)
    assert engine.scheduler.pool.num_free == 64
    assert len(outputs) == 4
    scores = [[row for one in pieces for row in one.prompt_logprobs] for pieces in outputs.values()]
    assert scores == [scores[0]] * 4
    assert len(scores[0]) == (0 if prompt_logprobs is None else 49)


def count_tokens(engine):
    """The list to which each step adds how many tokens it computed."""
    step, counts = engine.executor.step, []

    def counted(slices):
        counts.append(sum(len(one.token_ids) for one in slices))
        return step(slices)

    engine.executor.step = counted
    return counts


def test_n_answers_hold_the_pages_of_their_prompt_once():
    engine = make_engine(prefix_cache=False)
    pool = engine.scheduler.pool
    requests = engine.submit_many([5] * 72, SamplingParams(n=8, seed=1, temperature=1.5))
    engine.step()
    assert pool.num_free == 64 - 5
    assert len({one.token_ids[-1] for one in requests}) > 1, "each has its own first token"
    engine.step()
    assert pool.num_free == 64 - 4 - 8, "and a copy of the page that was half full"
    assert len({tuple(one.pages[:4]) for one in requests}) == 1


def test_answers_of_one_token_need_no_place():
    engine = make_engine(num_pages=4, max_running=1)
    params = SamplingParams(n=9, seed=1, temperature=1.5, max_tokens=1)
    engine.submit_many([5] * 40, params)
    outputs = engine.step()
    assert [one.finish_reason for one in outputs] == ["length"] * 9
    assert not engine.has_work
    engine.check_integrity()


def test_those_without_a_place_have_their_first_token_and_wait():
    engine = make_engine(max_running=2)
    params = SamplingParams(n=4, seed=1, temperature=1.5, max_tokens=5, ignore_eos=True)
    requests = engine.submit_many([5] * 40, params)
    assert len(engine.step()) == 4
    assert engine.scheduler.running == requests[:2]
    assert list(engine.scheduler.waiting) == requests[2:]
    run_to_end(engine)
    alone = [engine.submit([5] * 40, params.choice(i)) for i in range(4)]
    run_to_end(engine)
    assert [one.token_ids for one in requests] == [one.token_ids for one in alone]


def test_nobody_takes_the_places_of_answers_whose_prompt_is_under_way():
    engine = make_engine(max_running=4, max_step_tokens=64)
    params = SamplingParams(n=3, seed=1, max_tokens=9, ignore_eos=True)
    first, second, third = engine.submit_many([5] * 40, params)
    later = [engine.submit([6 + i], SamplingParams(max_tokens=9)) for i in range(2)]
    engine.step()
    assert engine.scheduler.running == [first, later[0], second, third]
    assert list(engine.scheduler.waiting) == [later[1]]
    run_to_end(engine)


def test_more_urgent_requests_do_take_them():
    engine = make_engine(max_running=2, max_step_tokens=16, policy="priority")
    first, *_ = engine.submit_many([5] * 40, SamplingParams(n=3, max_tokens=9))
    engine.step()
    urgent = engine.submit([6], SamplingParams(max_tokens=9), Service(priority=9))
    later = engine.submit([6], SamplingParams(max_tokens=9), Service(priority=-9))
    engine.step()
    assert engine.scheduler.running == [first]
    engine.step()
    assert engine.scheduler.running == [first, urgent]
    assert later in set(engine.scheduler.waiting)
    run_to_end(engine)


def test_answers_that_wait_for_a_prompt_are_waiting():
    engine = make_engine(max_waiting=4, max_step_tokens=16)
    engine.submit_many([5] * 40, SamplingParams(n=3, max_tokens=2))
    assert engine.scheduler.num_waiting == engine.scheduler.num_unfinished == 3
    engine.step()
    assert engine.scheduler.num_waiting == 2
    with pytest.raises(QueueFullError, match="2 waiting of at most 4"):
        engine.submit_many([6], SamplingParams(n=3))
    engine.submit_many([6], SamplingParams(n=2, max_tokens=2))
    run_to_end(engine)
    assert engine.scheduler.num_waiting == 0


def test_a_prompt_of_n_answers_is_charged_once():
    engine = make_engine(fair_shares=True, prefix_cache=False)
    params = SamplingParams(n=4, max_tokens=3, ignore_eos=True)
    engine.submit_many([5] * 40, params, Service(tenant="a"))
    run_to_end(engine)
    assert engine.scheduler.waiting.served("a") == 40 + GENERATED_WEIGHT * 4 * 2


def test_a_scored_prompt_that_was_preempted_is_found_in_the_cache():
    engine = make_engine()
    request = engine.submit([5] * 40, SamplingParams(prompt_logprobs=0, max_tokens=4))
    num_tokens = count_tokens(engine)
    engine.step()
    engine.scheduler._preempt(request, StepPlan())
    engine.step()
    assert num_tokens == [40, 41 - 32]
    (pieces,) = run_to_end(engine).values()
    assert not any(one.prompt_logprobs for one in pieces), "they came with the first token"


@pytest.mark.parametrize("failing", [frozenset(), frozenset({1})])
def test_others_of_n_go_on_when_the_first_ends_before_its_prompt_is_computed(failing):
    executor = ToyExecutor(spec=SPEC, failing_steps=failing)
    engine = Engine(executor, ToyTokenizer(), ScheduleConfig(max_step_tokens=4))
    params = SamplingParams(n=3, seed=1, max_tokens=2, ignore_eos=True)
    first, second, third = engine.submit_many([5] * 20, params)
    later = engine.submit_many([6] * 20, params)
    engine.step()
    assert engine.cancel(third.id)
    engine.check_integrity()
    if not failing:
        assert engine.cancel(first.id)
    assert engine.cancel(later[0].id)
    outputs = run_to_end(engine)
    assert first.finish_reason == ("error" if failing else "cancelled")
    assert second.finish_reason == "length"
    assert third.finish_reason == "cancelled"
    assert [one.finish_reason for one in later] == ["cancelled", "length", "length"]
    assert not engine.cancel(second.id)
    assert set(outputs) <= {one.id for one in (first, second, third, *later)}


@pytest.mark.parametrize("num_pages", [64, 6])
@pytest.mark.parametrize("max_step_tokens", [1, 7, 512])
def test_prompt_logprobs_are_the_references_in_any_chunks(num_pages, max_step_tokens):
    engine = make_engine(num_pages=num_pages, max_step_tokens=max_step_tokens)
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, prompt_logprobs=2)
    prompts = [list(range(3 + i, 3 + i + length)) for i, length in enumerate((1, 2, 33, 40))]
    requests = [engine.submit(prompt, params) for prompt in prompts]
    outputs = run_to_end(engine)
    for prompt, request in zip(prompts, requests, strict=True):
        first, *later = outputs[request.id]
        assert len(first.token_ids) == 1
        assert not any(one.prompt_logprobs for one in later)
        assert [one.chosen.token_id for one in first.prompt_logprobs] == prompt[1:]
        for i, found in enumerate(first.prompt_logprobs):
            row = reference_logits(prompt[: i + 1], SPEC.vocab_size).tolist()
            assert found.chosen.logprob == pytest.approx(reference_logprobs(row)[prompt[i + 1]])
            assert found.top[0].token_id == row.index(max(row))
            assert len(found.top) == 2
    if (num_pages, max_step_tokens) == (6, 512):
        assert any(one.num_preemptions for one in requests)


def test_a_prompt_whose_logits_are_not_finite_ends_its_own_request():
    engine = make_engine()
    healthy_step = engine.executor.step

    def step(slices):
        logits = healthy_step(slices)
        logits[0] = np.nan
        return logits

    engine.executor.step = step
    scored = engine.submit([5, 6, 7], SamplingParams(prompt_logprobs=0))
    spared = engine.submit([6], SamplingParams(temperature=0))
    outputs = {one.request: one for one in engine.step()}
    assert outputs[scored].finish_reason == "error"
    assert "not finite" in outputs[scored].error
    assert len(outputs[spared].token_ids) == 1


def test_before_min_tokens_neither_token_nor_text_ends_the_answer():
    base = {"temperature": 0, "max_tokens": 20}
    engine = make_engine()
    free = engine.submit([9], SamplingParams(ignore_eos=True, **base))
    run_to_end(engine)
    generated = free.token_ids[1:]
    early, text = generated[2], ToyTokenizer().decode(generated[3:5])
    stopped = engine.submit([9], SamplingParams(stop_token_ids=(early,), stop=(text,), **base))
    longer = engine.submit(
        [9], SamplingParams(stop_token_ids=(early,), stop=(text,), min_tokens=10, **base)
    )
    outputs = run_to_end(engine)
    assert stopped.num_generated_tokens == 3
    assert longer.num_generated_tokens >= 10
    assert not {early, EOS} & set(longer.token_ids[1:11])
    assert outputs[longer.id][-1].finish_reason in ("stop", "length")


def digits_only(generated):
    """A grammar: up to four digits, then the end."""
    return [ord(c) + 1 for c in "0123456789"] if len(generated) < 4 else [EOS]


def test_a_token_filter_is_a_grammar():
    engine = make_engine()
    params = SamplingParams(token_filter=digits_only, seed=3)
    request, free = engine.submit([9], params), engine.submit([9], SamplingParams(seed=3))
    outputs = run_to_end(engine)[request.id]
    text = "".join(one.text for one in outputs)
    assert len(text) == 4
    assert text.isdigit()
    assert outputs[-1].finish_reason == "stop"
    assert free.token_ids != request.token_ids


def test_a_token_filter_may_give_booleans_or_nothing():
    mask = np.zeros(SPEC.vocab_size, np.bool_)
    mask[7] = True
    params = SamplingParams(
        token_filter=lambda generated: None if generated else mask, temperature=0, max_tokens=3
    )
    engine = make_engine()
    request = engine.submit([9], params)
    run_to_end(engine)
    assert request.token_ids[1] == 7
    assert request.token_ids[2] == int(np.argmax(reference_logits([9, 7], SPEC.vocab_size)))


def failing(generated):
    raise KeyError("no such rule")


@pytest.mark.parametrize(
    ("token_filter", "message"),
    [
        (failing, "the token filter failed: KeyError"),
        (lambda generated: sys.exit(3), "the token filter failed: SystemExit"),
        (lambda generated: [], "allows no token"),
        (lambda generated: np.zeros(SPEC.vocab_size, np.bool_), "allows no token"),
        (lambda generated: np.ones(3, np.bool_), "not token ids"),
        (lambda generated: [0.5], "not token ids"),
        (lambda generated: 5, "the token filter failed: TypeError"),
        (lambda generated: [[1, 2], [3, 4]], "not token ids"),
        (lambda generated: [-1], "does not have"),
        (lambda generated: [2**40], "does not have"),
        (lambda generated: {3}, None),
        (lambda generated: [EOS], "allow no token"),
    ],
)
def test_a_bad_token_filter_ends_its_own_request(token_filter, message):
    engine = make_engine()
    options = {"temperature": 0, "max_tokens": 3, "min_tokens": 1}
    failed = engine.submit([9], SamplingParams(token_filter=token_filter, **options))
    spared = engine.submit([9], SamplingParams(temperature=0, max_tokens=3))
    outputs = run_to_end(engine)
    last = outputs[failed.id][-1]
    assert (last.error is None) == (message is None)
    if message is not None:
        assert last.finish_reason == "error"
        assert message in last.error
    assert spared.num_generated_tokens == 3


def test_ctrl_c_in_a_token_filter_is_nobodys_error():
    def interrupted(generated):
        raise KeyboardInterrupt

    engine = make_engine()
    engine.submit([9], SamplingParams(token_filter=interrupted))
    with pytest.raises(KeyboardInterrupt):
        engine.step()


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("stop_token_ids", {"stop_token_ids": (512,)}),
        ("logit_bias", {"logit_bias": {512: 1.0}}),
        ("allowed_token_ids", {"allowed_token_ids": (3, 512)}),
        ("bad_words", {"bad_words": ((3,), (4, 512))}),
    ],
)
def test_a_token_id_that_the_model_does_not_have_is_refused(field, options):
    engine = make_engine()
    with pytest.raises(ParameterError, match="0 to 511") as caught:
        engine.submit([3], SamplingParams(**options))
    assert caught.value.field == field
    assert not engine.has_work

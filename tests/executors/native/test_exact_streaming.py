"""Promise 1, Exact, for texts longer than their window: through the engine, from a cold or a warm
prefix, in any chunks, on any threads, preempted or not, with draft tokens or without."""

from dataclasses import replace

import pytest

from fakes.random_executor import TINY, WEIGHT_SPECS, random_executor
from fakes.specs import changed
from fakes.toy_executor import ToyTokenizer
from paredown.engine.engine import Engine
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.make_speculator import make_speculator
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.executors.native.native_executor import NativeExecutor
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context

Answer = tuple[list[int], list[object]]

SHARED = [(7 * i * i + 3 * i) % 97 for i in range(300)]
# Much longer than the window, at the border of a page and beside it; shorter; another text.
PROMPTS = [SHARED[:250], SHARED[:160], SHARED[:161], SHARED[:20], [*SHARED[:40], *range(60)]]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=60, ignore_eos=True, logprobs=2),
    SamplingParams(temperature=0.9, seed=5, max_tokens=30, ignore_eos=True, prompt_logprobs=0),
]
SPECS = {
    "window": changed(TINY, max_positions=400, sliding_window=37),
    "sinks": Context(
        spec=replace(TINY, max_positions=128),
        sinks=AttentionSinks(num_sink_tokens=4, window=40),
    ),
}
FORMATS = {"window": ("int8", "int4-g32"), "sinks": ("bf16", "bf16")}


def make_executor(name: str, *, num_pages: int, num_threads: int) -> NativeExecutor:
    kv_dtype, format_name = FORMATS[name]
    return random_executor(
        SPECS[name],
        WEIGHT_SPECS[format_name],
        num_pages=num_pages,
        num_threads=num_threads,
        kv_dtype=kv_dtype,
    )


def run(engine: Engine) -> dict[int, Answer]:
    answers: dict[int, Answer] = {}
    while engine.has_work:
        for output in engine.step():
            assert output.error is None
            tokens, logprobs = answers.setdefault(output.request.id, ([], []))
            tokens += output.token_ids
            logprobs += [*output.prompt_logprobs, *output.logprobs]
        engine.check_integrity()
    return answers


def submit_all(engine: Engine) -> list[Request]:
    return [engine.submit(prompt, params) for params in PARAMS for prompt in PROMPTS]


@pytest.fixture(scope="module")
def alone() -> dict[str, list[Answer]]:
    """Each request by itself, its prompt in one piece, nothing cached, every page kept."""
    found: dict[str, list[Answer]] = {}
    for name in SPECS:
        config = ScheduleConfig(prefix_cache=False)
        engine = Engine(make_executor(name, num_pages=64, num_threads=1), ToyTokenizer(97), config)
        found[name] = []
        for params in PARAMS:
            for prompt in PROMPTS:
                request = engine.submit(prompt, params)
                found[name].append(run(engine)[request.id])
    return found


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("num_pages", [9, 64])
@pytest.mark.parametrize("max_step_tokens", [1, 7, 64, 512])
@pytest.mark.parametrize("name", SPECS)
def test_cold_warm_chunked_and_preempted_give_the_same_bits(
    name: str,
    max_step_tokens: int,
    num_pages: int,
    num_threads: int,
    alone: dict[str, list[Answer]],
) -> None:
    executor = make_executor(name, num_pages=num_pages, num_threads=num_threads)
    config = ScheduleConfig(max_step_tokens=max_step_tokens)
    engine = Engine(executor, ToyTokenizer(97), config)
    for _ in range(2):
        requests = submit_all(engine)
        answers = run(engine)
        assert [answers[one.id] for one in requests] == alone[name]
    if num_pages == 64:
        assert requests[0].num_cached_tokens == 240
    else:
        assert engine.scheduler.cache.stats.num_evictions > 0


@pytest.mark.parametrize("name", SPECS)
def test_preempted_again_and_again_the_bits_are_the_same(
    name: str, alone: dict[str, list[Answer]]
) -> None:
    executor = make_executor(name, num_pages=64, num_threads=1)
    engine = Engine(executor, ToyTokenizer(97), ScheduleConfig(max_step_tokens=64))
    requests, num_steps = submit_all(engine), 0
    scheduler, step = engine.scheduler, engine.scheduler.schedule

    def schedule_and_preempt():
        nonlocal num_steps
        num_steps += 1
        plan = step()
        if num_steps % 3 == 0 and scheduler.running:
            scheduler._preempt(scheduler.running[num_steps % len(scheduler.running)], plan)
        return plan

    scheduler.schedule = schedule_and_preempt
    answers = run(engine)
    assert [answers[one.id] for one in requests] == alone[name]
    assert scheduler.num_preemptions > 3


@pytest.mark.parametrize("name", SPECS)
def test_draft_tokens_change_nothing(name: str, alone: dict[str, list[Answer]]) -> None:
    executor = make_executor(name, num_pages=64, num_threads=1)
    tokenizer = ToyTokenizer(97)
    config = SpeculationConfig(kind="ngram", max_draft_tokens=4, is_adaptive=False, min_match=1)
    speculator = make_speculator(config, executor, tokenizer)
    engine = Engine(executor, tokenizer, ScheduleConfig(), speculator)
    requests = submit_all(engine)
    answers = run(engine)
    assert [answers[one.id] for one in requests] == alone[name]
    assert sum(speculator.stats.num_proposed) > 0


def test_a_request_goes_on_beyond_the_context_and_all_pages() -> None:
    executor = make_executor("sinks", num_pages=6, num_threads=1)
    engine = Engine(executor, ToyTokenizer(97), ScheduleConfig(max_step_tokens=16))
    params = SamplingParams(temperature=1, seed=3, max_tokens=400, ignore_eos=True)
    request = engine.submit(SHARED, params)
    (answer,) = run(engine).values()
    assert len(answer[0]) == 400
    assert request.num_tokens == 700 > 5 * executor.spec.max_positions

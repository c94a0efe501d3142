"""Promise 1, Exact, for prefixes: tokens and log-probabilities have the same bits from a cold and a
warm cache, in any chunking, preempted or not, on any number of threads."""

from collections.abc import Iterator

import pytest

from paredown.engine.engine import Engine
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.scheduler import ScheduleConfig
from paredown.spec.kv import KVDType
from random_executor import TINY, WEIGHT_SPECS, random_executor
from toy_executor import ToyTokenizer

Answer = tuple[list[int], list[object]]

SHARED = [(7 * i * i + 3 * i) % 97 for i in range(120)]
# Ends inside a page, at its border, one before and one after it; a part of another; nothing shared.
PROMPTS = [
    SHARED[:100],
    SHARED[:64],
    SHARED[:63],
    SHARED[:65],
    [*SHARED[:40], *range(50)],
    [*range(30)],
]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, logprobs=2),
    SamplingParams(temperature=0.9, top_p=0.95, seed=5, max_tokens=20, ignore_eos=True, logprobs=2),
]


def make_engine(
    *,
    config: ScheduleConfig,
    kv_dtype: KVDType,
    format_name: str = "bf16",
    num_pages: int = 64,
    num_threads: int = 1,
) -> Engine:
    executor = random_executor(
        TINY,
        WEIGHT_SPECS[format_name],
        num_pages=num_pages,
        num_threads=num_threads,
        kv_dtype=kv_dtype,
    )
    return Engine(executor, ToyTokenizer(TINY.vocab_size), config)


def run(engine: Engine) -> dict[int, Answer]:
    answers: dict[int, Answer] = {}
    while engine.has_work:
        for output in engine.step():
            assert output.error is None
            tokens, logprobs = answers.setdefault(output.request.id, ([], []))
            tokens += output.token_ids
            logprobs += output.logprobs
        engine.check_integrity()
    return answers


def work() -> Iterator[tuple[list[int], SamplingParams]]:
    for params in PARAMS:
        for prompt in PROMPTS:
            yield prompt, params


def submit_all(engine: Engine) -> list[Request]:
    return [engine.submit(prompt, params) for prompt, params in work()]


def alone(kv_dtype: KVDType, format_name: str) -> list[Answer]:
    """Each request by itself, its prompt in one piece, nothing cached."""
    found = []
    config = ScheduleConfig(prefix_cache=False)
    engine = make_engine(config=config, kv_dtype=kv_dtype, format_name=format_name)
    for prompt, params in work():
        request = engine.submit(prompt, params)
        found.append(run(engine)[request.id])
    assert engine.scheduler.cache.num_cached_pages == 0
    return found


@pytest.fixture(scope="module")
def expected() -> dict[tuple[KVDType, str], list[Answer]]:
    return {
        ("bf16", "bf16"): alone("bf16", "bf16"),
        ("int8", "int4-g32"): alone("int8", "int4-g32"),
    }


@pytest.mark.parametrize(("kv_dtype", "format_name"), [("bf16", "bf16"), ("int8", "int4-g32")])
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("num_pages", [12, 64])
@pytest.mark.parametrize("max_step_tokens", [1, 7, 64, 512])
def test_cold_warm_chunked_and_preempted_give_the_same_bits(
    max_step_tokens: int,
    num_pages: int,
    num_threads: int,
    kv_dtype: KVDType,
    format_name: str,
    expected: dict[tuple[KVDType, str], list[Answer]],
) -> None:
    config = ScheduleConfig(max_step_tokens=max_step_tokens)
    engine = make_engine(
        config=config,
        kv_dtype=kv_dtype,
        format_name=format_name,
        num_pages=num_pages,
        num_threads=num_threads,
    )
    cold = submit_all(engine)
    cold_answers = run(engine)
    warm = submit_all(engine)
    warm_answers = run(engine)
    reference = expected[kv_dtype, format_name]
    assert [cold_answers[one.id] for one in cold] == reference
    assert [warm_answers[one.id] for one in warm] == reference
    if num_pages == 64:
        num_warm = sum(one.num_cached_tokens for one in warm)
        assert num_warm == sum((len(one.token_ids) - 21) // 16 * 16 for one in warm), (
            "all but the last page of each prompt"
        )
    elif max_step_tokens > 7:
        assert engine.scheduler.num_preemptions > 0
        assert engine.scheduler.cache.stats.num_evictions > 0


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("every", [2, 3])
def test_preempted_again_and_again_the_bits_are_the_same(
    every: int, num_threads: int, expected: dict[tuple[KVDType, str], list[Answer]]
) -> None:
    """Each of the running requests in turn is sent back, whatever it had come to."""
    engine = make_engine(
        config=ScheduleConfig(max_step_tokens=64), kv_dtype="bf16", num_threads=num_threads
    )
    requests, answers, num_steps = submit_all(engine), dict[int, Answer](), 0
    scheduler, step = engine.scheduler, engine.scheduler.schedule

    def schedule_and_preempt():
        nonlocal num_steps
        num_steps += 1
        plan = step()
        if num_steps % every == 0 and scheduler.running:
            scheduler._preempt(scheduler.running[num_steps % len(scheduler.running)], plan)
        return plan

    scheduler.schedule = schedule_and_preempt
    answers = run(engine)
    assert [answers[one.id] for one in requests] == expected["bf16", "bf16"]
    assert scheduler.num_preemptions > 3

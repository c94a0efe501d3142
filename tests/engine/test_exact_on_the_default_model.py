"""Promise 1, Exact, end to end: the built-in model through engine and native core gives a request
the same tokens and log-probabilities whatever runs beside it and however it is cut."""

import pytest

from paredown.engine.llm import LLM, Completion
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.scheduler import ScheduleConfig

PROMPTS = [
    "The old house stood at the end of the lane, and",
    "\u201cYou are mistaken,\u201d said the captain.",
    "It was",
    "Chapter the First. " * 30,
    "He looked at the sea for a long time before he spoke. " * 9,
]
GREEDY = SamplingParams(max_tokens=24, temperature=0, logprobs=3)
SAMPLED = SamplingParams(max_tokens=24, temperature=0.9, top_p=0.95, top_k=50, seed=7, logprobs=1)
PARAMS = {"greedy": GREEDY, "sampled": SAMPLED}


def answer(completion: Completion) -> tuple[object, ...]:
    return completion.token_ids, completion.logprobs, completion.text, completion.finish_reason


@pytest.fixture(scope="module")
def alone() -> dict[str, list[tuple[object, ...]]]:
    llm = LLM(None, num_threads=1)
    return {
        name: [answer(llm.generate(prompt, params)[0]) for prompt in PROMPTS]
        for name, params in PARAMS.items()
    }


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("max_step_tokens", [1, 7, 64, 4096])
def test_batch_chunks_and_threads_change_no_bit(
    kind: str,
    num_threads: int,
    max_step_tokens: int,
    alone: dict[str, list[tuple[object, ...]]],
) -> None:
    config = ScheduleConfig(max_step_tokens=max_step_tokens)
    llm = LLM(None, num_threads=num_threads, config=config)
    together = llm.generate(PROMPTS, PARAMS[kind])
    assert [answer(completion) for completion in together] == alone[kind]


@pytest.mark.parametrize("kind", PARAMS)
def test_preemption_changes_no_bit(kind: str, alone: dict[str, list[tuple[object, ...]]]) -> None:
    """So few pages that the requests cannot all run at once."""
    llm = LLM(None, num_pages=20, num_threads=2)
    together = llm.generate(PROMPTS, PARAMS[kind])
    assert [answer(completion) for completion in together] == alone[kind]
    assert llm.engine.scheduler.num_preemptions > 0


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize("max_step_tokens", [7, 512])
def test_a_warm_prefix_changes_no_bit(
    kind: str, max_step_tokens: int, alone: dict[str, list[tuple[object, ...]]]
) -> None:
    llm = LLM(None, num_threads=2, config=ScheduleConfig(max_step_tokens=max_step_tokens))
    for prompt, expected in zip(PROMPTS, alone[kind], strict=True):
        assert answer(llm.generate(prompt, PARAMS[kind])[0]) == expected
    cold = llm.engine.scheduler.cache.stats.num_hit_tokens
    together = llm.generate(PROMPTS, PARAMS[kind])
    assert [answer(completion) for completion in together] == alone[kind]
    assert llm.engine.scheduler.cache.stats.num_hit_tokens > cold + 100


def test_a_batch_of_33_changes_no_bit(alone: dict[str, list[tuple[object, ...]]]) -> None:
    llm = LLM(None, num_threads=2)
    prompts = (PROMPTS * 7)[:33]
    together = llm.generate(prompts, GREEDY)
    expected = (alone["greedy"] * 7)[:33]
    assert [answer(completion) for completion in together] == expected

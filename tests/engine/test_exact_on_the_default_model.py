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
# Every step of docs/sampling.md at once.
SHAPED = SamplingParams(
    max_tokens=24,
    temperature=1.2,
    top_k=200,
    top_p=0.97,
    min_p=0.001,
    typical_p=0.95,
    repetition_penalty=1.2,
    presence_penalty=0.3,
    frequency_penalty=0.2,
    logit_bias={11: 1.5, 12: -3.0},
    bad_words=((13,), (14, 15)),
    min_tokens=4,
    seed=8,
    logprobs=1,
)
PARAMS = {"greedy": GREEDY, "sampled": SAMPLED, "shaped": SHAPED}


def answer(completion: Completion) -> tuple[object, ...]:
    return (
        completion.token_ids,
        completion.logprobs,
        completion.prompt_logprobs,
        completion.text,
        completion.finish_reason,
    )


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


def test_scores_of_prompts_have_the_same_bits_in_any_batch_and_any_chunks() -> None:
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=1)
    llm = LLM(None, num_threads=1)
    alone = [llm.generate(prompt, params)[0].prompt_logprobs for prompt in PROMPTS]
    again = [llm.generate(prompt, params)[0].prompt_logprobs for prompt in PROMPTS]
    assert again == alone, "over a warm prefix"
    for max_step_tokens in (7, 64, 4096):
        config = ScheduleConfig(max_step_tokens=max_step_tokens)
        together = LLM(None, num_threads=2, config=config).generate(PROMPTS, params)
        assert [one.prompt_logprobs for one in together] == alone
        for one in together:
            assert len(one.prompt_logprobs) == len(one.prompt_token_ids) - 1

"""The offline API: several answers to a prompt, and what it refuses."""

import pytest

from paredown.engine.llm import LLM
from paredown.engine.request_output import RequestOutput
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.errors import CapacityError, ConfigError, RequestError
from paredown.spec.kv import PAGE_SIZE

PROMPTS = ["It was", "The old house stood at the end of the lane, and"]


@pytest.fixture(scope="module", params=["native", "torch"])
def llm(request: pytest.FixtureRequest) -> LLM:
    config = ScheduleConfig(max_waiting=4, max_running=2)
    return LLM(None, num_pages=64, num_threads=1, config=config, executor=request.param)


def test_n_answers_stand_side_by_side_and_are_those_of_their_seeds(llm: LLM) -> None:
    together = llm.generate(PROMPTS * 3, SamplingParams(n=3, seed=5, max_tokens=6))
    assert [one.prompt for one in together] == [prompt for prompt in PROMPTS * 3 for _ in range(3)]
    for i in range(3):
        alone = llm.generate(PROMPTS, SamplingParams(seed=5 + i, max_tokens=6))
        assert [one.text for one in together[i::3]] == [one.text for one in alone] * 3
    assert len({one.text for one in together}) == 6
    assert not llm.engine.has_work


def test_more_answers_than_the_queue_holds_are_refused(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step() -> list[RequestOutput]:
        raise AssertionError("refused after something was computed")

    with monkeypatch.context() as patch:
        patch.setattr(llm.engine, "step", step)
        with pytest.raises(QueueFullError, match="n 5, max_waiting 4"):
            llm.generate(PROMPTS, [SamplingParams(n=2), SamplingParams(n=5)])
    assert not llm.engine.has_work


@pytest.mark.parametrize(
    ("prompts", "seen"),
    [
        (["a", 5, "b"], "5"),
        ([[5], 6], "6"),
        ([5, 1.5], "5"),
        ([1.5], "1.5"),
        (["a", None], "None"),
        (["a", b"b"], "b'b'"),
        (5, "5"),
    ],
)
def test_what_is_no_prompt_is_refused(llm: LLM, prompts: list[str], seen: str) -> None:
    for ask in (llm.generate, llm.score_rolling):
        with pytest.raises(RequestError, match="a prompt is a text or a list") as caught:
            ask(prompts)
        assert caught.value.seen == seen
    assert not llm.engine.has_work


def test_a_stream_has_one_answer(llm: LLM) -> None:
    with pytest.raises(RequestError, match="one answer"):
        next(llm.stream(PROMPTS[0], SamplingParams(n=2)))


def test_prompts_are_scored(llm: LLM) -> None:
    done = llm.generate(PROMPTS[1], SamplingParams(max_tokens=1, prompt_logprobs=0))[0]
    scored = [one.chosen.token_id for one in done.prompt_logprobs]
    assert scored == done.prompt_token_ids[1:]
    assert all(-30 < one.chosen.logprob < 0 for one in done.prompt_logprobs)


def test_pages_are_as_many_as_the_memory_given_holds():
    llm = LLM(None, kv_cache_bytes=3 << 20, num_threads=1)
    spec, num_pages = llm.engine.executor.spec, llm.engine.executor.num_pages
    page_bytes = 2 * sum(layer.attention.kv_size for layer in spec.layers) * PAGE_SIZE * 2
    assert num_pages == (3 << 20) // page_bytes
    assert llm.page_arithmetic.startswith(f"KV pages: {num_pages} of 16 tokens x 5 layers x")
    assert f"{num_pages * PAGE_SIZE:,} tokens" in llm.page_arithmetic


def test_memory_for_pages_that_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="given twice"):
        LLM(None, kv_cache_bytes=1 << 20, num_pages=4)
    for num_bytes in (float("nan"), 2e9, "2GB", True):
        with pytest.raises(ConfigError, match="kv_cache_bytes must be an integer"):
            LLM(None, kv_cache_bytes=num_bytes)
    for num_pages in (1.5, float("nan"), "4", True, 0):
        with pytest.raises(ConfigError, match="there must be KV pages"):
            LLM(None, num_pages=num_pages)
    for num_bytes in (100, 0, -5):
        with pytest.raises(CapacityError, match="holds no page"):
            LLM(None, kv_cache_bytes=num_bytes)


def test_the_models_own_settings_hold_where_none_are_given(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = SamplingDefaults(top_k=1, max_tokens=5)
    monkeypatch.setattr(llm, "sampling_defaults", defaults)
    (taken,) = llm.generate(PROMPTS[0])
    (greedy,) = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=5))
    assert taken.token_ids == greedy.token_ids
    streamed = [token for piece in llm.stream(PROMPTS[0]) for token in piece.token_ids]
    assert streamed == greedy.token_ids
    # Parameters that somebody made are complete.
    (own,) = llm.generate(PROMPTS[0], SamplingParams(seed=1, max_tokens=9))
    assert len(own.token_ids) == 9


def test_the_packaged_model_says_nothing_of_its_own(llm: LLM) -> None:
    assert LLM.sampling_defaults.func(llm) == SamplingDefaults()  # type: ignore[attr-defined]

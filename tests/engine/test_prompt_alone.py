"""Prompts that are read and scored, with no token drawn."""

import pytest

from fakes.toy_executor import ToyExecutor, ToyTokenizer, reference_logits
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from references.sampling import reference_logprobs

PROMPT = [7, 300, 4, 9, 200, 31, 5, 5, 8] * 5


def engine(**config) -> Engine:
    return Engine(ToyExecutor(num_pages=64), ToyTokenizer(), ScheduleConfig(**config))


def run(one: Engine) -> dict[int, list]:
    """Returns the outputs of each request."""
    found: dict[int, list] = {}
    while one.has_work:
        for output in one.step():
            found.setdefault(output.request.id, []).append(output)
        one.check_integrity()
    return found


@pytest.mark.parametrize("n", [1, 3, 40])
@pytest.mark.parametrize("prompt_logprobs", [None, 0, 2])
@pytest.mark.parametrize("config", [{}, {"max_step_tokens": 8}, {"max_running": 2}])
def test_each_answer_ends_with_the_prompt(n, prompt_logprobs, config):
    one = engine(**config)
    params = SamplingParams(max_tokens=0, n=n, prompt_logprobs=prompt_logprobs)
    one.submit_many(PROMPT, params)
    found = run(one)
    assert len(found) == n
    for (output,) in found.values():
        assert (output.token_ids, output.text, output.finish_reason) == ([], "", "length")
        rows = output.prompt_logprobs
        assert len(rows) == (0 if prompt_logprobs is None else len(PROMPT) - 1)
        for end, row in enumerate(rows, 1):
            logits = reference_logits(PROMPT[:end], 512)
            wanted = reference_logprobs(logits)[PROMPT[end]]
            assert row.chosen.token_id == PROMPT[end]
            assert row.chosen.logprob == pytest.approx(wanted)
    assert one.scheduler.pool.num_free == 64


def test_others_go_on_beside_them_with_the_same_tokens():
    params = SamplingParams(max_tokens=20, ignore_eos=True, seed=3)
    alone = engine()
    alone.submit(PROMPT, params)
    (outputs,) = run(alone).values()
    beside = engine(max_step_tokens=16)
    request = beside.submit(PROMPT, params)
    for number in range(10):
        beside.submit(PROMPT[number:], SamplingParams(max_tokens=0, prompt_logprobs=number % 2))
    found = run(beside)
    assert len(found) == 11
    tokens = [token for one in found[request.id] for token in one.token_ids]
    assert tokens == [token for one in outputs for token in one.token_ids]


def test_the_prompt_is_in_the_cache_afterwards():
    one = engine()
    one.submit(PROMPT, SamplingParams(max_tokens=0))
    run(one)
    request = one.submit(PROMPT, SamplingParams(max_tokens=1))
    run(one)
    assert request.num_cached_tokens == (len(PROMPT) - 1) // 16 * 16

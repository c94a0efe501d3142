"""The torch executor under an engine: the answers of one thread are those of another, alone or in
a batch."""

import asyncio

import numpy as np
import pytest
import torch

from drivers.devices import DEVICES
from paredown.engine.async_llm import AsyncLLM
from paredown.engine.llm import LLM, Completion
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.resolve import resolve_model

PROMPTS = [list(range(5, 5 + length)) for length in (1, 15, 16, 17, 40)]
PARAMS = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True, logprobs=2)


@pytest.fixture(scope="module", params=DEVICES)
def llm(request: pytest.FixtureRequest) -> LLM:
    return LLM(executor="torch", device=request.param, num_threads=1)


def bits(completions: list[Completion]) -> list[tuple[list[int], list[float]]]:
    return [(one.token_ids, [row.chosen.logprob for row in one.logprobs]) for one in completions]


def test_the_engines_own_thread_gives_the_same_bits(llm: LLM) -> None:
    """A thread has handles of libraries that another one does not share."""
    alone = [llm.generate(prompt, PARAMS)[0] for prompt in PROMPTS]

    async def together() -> list[Completion]:
        async with AsyncLLM(llm) as served:
            answers = await asyncio.gather(*(served.generate(one, PARAMS) for one in PROMPTS))
        return [answer[0] for answer in answers]

    assert bits(asyncio.run(together())) == bits(alone)
    assert bits(llm.generate(PROMPTS, PARAMS)) == bits(alone)


def test_answers_are_the_likeliest_tokens_of_the_decoder(llm: LLM) -> None:
    decoder = Decoder.from_checkpoint(Checkpoint.open(resolve_model(None)))
    for answer in llm.generate(PROMPTS, PARAMS):
        text = [*answer.prompt_token_ids, *answer.token_ids]
        rows = decoder(torch.tensor([text]))[0].log_softmax(-1).numpy()
        rows = rows[len(answer.prompt_token_ids) - 1 : -1]
        chosen = rows[np.arange(len(rows)), answer.token_ids]
        assert (rows.max(-1) - chosen < 0.05).all(), "bf16 pages move logits a little"
        told = [row.chosen.logprob for row in answer.logprobs]
        assert np.abs(chosen - told).max() < 0.05


def test_a_draft_model_runs_on_the_device_and_changes_no_answer(llm: LLM) -> None:
    expected = bits(llm.generate(PROMPTS, PARAMS))
    device = llm.engine.executor._device
    speculation = SpeculationConfig(kind="draft", draft_model="draft")
    drafting = LLM(executor="torch", device=device, num_threads=1, speculation=speculation)
    assert bits(drafting.generate(PROMPTS, PARAMS)) == expected

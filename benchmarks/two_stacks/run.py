"""Answers of one length to prompts of one length, and when each token was there."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams

Clock = Literal["wall", "cpu"]
# "cpu": processor time of this process, for a machine that others use at the same time.
CLOCKS: dict[Clock, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True, kw_only=True)
class Load:
    """`batch` requests that come together."""

    batch: int
    prompt_tokens: int
    output_tokens: int


def seconds_to_outputs(
    llm: LLM, load: Load, outputs: Sequence[int], clock: Clock
) -> dict[int, float]:
    """Returns when every request had so many tokens, for each of `outputs`."""
    params = SamplingParams(temperature=0, max_tokens=load.output_tokens, ignore_eos=True)
    vocab_size, now = llm.engine.executor.spec.vocab_size, CLOCKS[clock]
    prompts = [
        [2 + (31 * i + 7 * j) % (vocab_size - 2) for i in range(load.prompt_tokens)]
        for j in range(load.batch)
    ]
    start_s, found = now(), dict[int, float]()
    requests = [llm.engine.submit(prompt, params) for prompt in prompts]
    while llm.engine.has_work:
        llm.engine.step()
        fewest = min(one.num_generated_tokens for one in requests)
        for num_tokens in outputs:
            if num_tokens <= fewest:
                found.setdefault(num_tokens, now() - start_s)
    return found

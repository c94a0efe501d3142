"""Answers of one length to prompts of one length, and when each token was there."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.clock import CLOCKS, Clock
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams


@dataclass(frozen=True, kw_only=True)
class Load:
    """`batch` requests that come together."""

    batch: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Step:
    """A step of the engine: how long it took, and how many tokens every request has after it."""

    seconds: float
    num_tokens: int


def run_steps(llm: LLM, load: Load, clock: Clock) -> list[Step]:
    """Returns the steps of a load, which are the same ones each time."""
    params = SamplingParams(temperature=0, max_tokens=load.output_tokens, ignore_eos=True)
    vocab_size, now = llm.engine.executor.spec.vocab_size, CLOCKS[clock]
    prompts = [
        [2 + (31 * i + 7 * j) % (vocab_size - 2) for i in range(load.prompt_tokens)]
        for j in range(load.batch)
    ]
    before_s, found = now(), list[Step]()
    requests = [llm.engine.submit(prompt, params) for prompt in prompts]
    while llm.engine.has_work:
        llm.engine.step()
        after_s = now()
        fewest = min(one.num_generated_tokens for one in requests)
        found.append(Step(after_s - before_s, fewest))
        before_s = after_s
    return found


def median_of(rounds: Sequence[Sequence[Step]]) -> list[Step]:
    """Returns each step with the median of its times in all rounds."""
    return [
        Step(median(one.seconds for one in same), same[0].num_tokens)
        for same in zip(*rounds, strict=True)
    ]


def seconds_to_outputs(steps: Sequence[Step], outputs: Sequence[int]) -> dict[int, float]:
    """Returns when every request had so many tokens, for each of `outputs`."""
    now_s, found = 0.0, dict[int, float]()
    for step in steps:
        now_s += step.seconds
        for num_tokens in outputs:
            if num_tokens <= step.num_tokens:
                found.setdefault(num_tokens, now_s)
    return found

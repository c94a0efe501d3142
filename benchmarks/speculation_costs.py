"""What a step and a draft of `benchmarks.speculation` take, measured apart."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from paredown.engine.sampling.make_draw_settings import make_draw_settings
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.executors.protocol import Executor, LoadedExecutor, SequenceSlice
from paredown.spec.kv import PAGE_SIZE

PASSAGE_TOKENS = 300
MAX_DRAFT = 12
NUM_TIMED = 25


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of a step of n tokens, T(n) at [n - 1], and of k draft tokens of a draft model, D(k)
    at [k]; where that is empty draft tokens take no time."""

    step_s: list[float]
    draft_s: Sequence[float] = ()

    def ceiling(self, rate: float) -> float:
        """The highest gain at this acceptance (see the top of benchmarks/speculation.py)."""
        gains = [1.0]
        for k in range(1, len(self.step_s)):
            num_tokens = sum(rate**i for i in range(k + 1))
            drafting_s = self.draft_s[k] if self.draft_s else 0.0
            gains.append(num_tokens / ((self.step_s[k] + drafting_s) / self.step_s[0]))
        return max(gains)


def time_steps(executors: Sequence[Executor], num_tokens: int) -> list[float]:
    """Median seconds of a step of so many tokens after a prompt, the executors in turn."""
    seconds: list[list[float]] = [[] for _ in executors]
    pages = list(range((PASSAGE_TOKENS + num_tokens) // PAGE_SIZE + 1))
    for executor in executors:
        prompt = [1 + i % 1000 for i in range(PASSAGE_TOKENS)]
        executor.step([SequenceSlice(token_ids=prompt, start=0, pages=pages, num_logits=1)])
    for _ in range(NUM_TIMED):
        for executor, found in zip(executors, seconds, strict=True):
            part = SequenceSlice(
                token_ids=[7] * num_tokens,
                start=PASSAGE_TOKENS,
                pages=pages,
                num_logits=num_tokens,
            )
            start_s = time.perf_counter()
            executor.step([part])
            found.append(time.perf_counter() - start_s)
    return [statistics.median(found) for found in seconds]


def time_drafts(draft: LoadedExecutor, target: Executor, num_draft_tokens: int) -> float:
    """Median seconds of so many draft tokens after a step of the target, which leaves nothing of
    the draft model in the inner caches."""
    pages = list(range((PASSAGE_TOKENS + num_draft_tokens) // PAGE_SIZE + 1))
    prompt = [1 + i % 1000 for i in range(PASSAGE_TOKENS)]
    for executor in (target, draft):
        executor.step([SequenceSlice(token_ids=prompt, start=0, pages=pages, num_logits=1)])
    part = SequenceSlice(token_ids=[7], start=PASSAGE_TOKENS, pages=pages, num_logits=1)
    vocab_size = draft.spec.vocab_size
    state = target.sampler.make_state(
        make_draw_settings(SamplingParams(temperature=0), seed=0), prompt, vocab_size
    )
    seconds = []
    for _ in range(NUM_TIMED):
        target.step([part])
        start_s = time.perf_counter()
        draft.write_drafts([part], [state], [num_draft_tokens])
        seconds.append(time.perf_counter() - start_s)
    return statistics.median(seconds)


def costs_of(target: LoadedExecutor, draft: LoadedExecutor | None) -> Costs:
    """The costs of a target alone, or with a draft model."""
    step_s = [time_steps([target], n)[0] for n in range(1, MAX_DRAFT + 2)]
    if draft is None:
        return Costs(step_s=step_s)
    draft_s = [time_drafts(draft, target, k) for k in range(1, MAX_DRAFT + 1)]
    return Costs(step_s=step_s, draft_s=[0.0, *draft_s])

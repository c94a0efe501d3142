"""Chooses the largest number of tokens per step from measured step times.

While a prompt is computed in chunks, running requests get one token per step, so a full step's time
is their inter-token latency. The measured step looks like one of these: some sequences decode in
the middle of the context, and a prompt chunk takes the rest of the budget.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from paredown.errors import ConfigError
from paredown.executors.page_memory import PLANNED_STEP_TOKENS
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec

NUM_DECODING = 8
# Budgets are multiples of this; the smallest holds a chunk beside the decoding requests.
_STEP = 16
_NUM_TRIALS = 5


@dataclass(frozen=True, kw_only=True)
class StepBudget:
    """The chosen budget. `seconds` maps each number of tokens to its step time, smallest first."""

    max_step_tokens: int
    target_s: float
    seconds: dict[int, float]

    @property
    def is_reached(self) -> bool:
        """Returns whether at least the smallest measured step meets the target."""
        return self.seconds[min(self.seconds)] <= self.target_s

    def arithmetic(self) -> str:
        """Returns one line with the target, the measurements and the choice."""
        steps = ", ".join(f"{num}: {1e3 * s:.1f} ms" for num, s in self.seconds.items())
        missed = "" if self.is_reached else ", which is not reached"
        return (
            f"step budget {self.max_step_tokens} tokens for {1e3 * self.target_s:g} ms between "
            f"tokens{missed}; steps of so many tokens took {steps}"
        )


def choose_step_budget(
    executor: Executor, target_s: float, *, clock: Callable[[], float] = time.perf_counter
) -> StepBudget:
    """Measures steps on an idle executor, whose pages it overwrites. Steps are at most as large as
    the planned working memory allows. Raises ConfigError for a senseless target."""
    if not 0 < target_s <= 3600:
        raise ConfigError(
            "the time between tokens is out of range", seen=target_s, remedy="Use 1 ms or more."
        )
    context = min(executor.spec.max_positions, executor.num_pages * PAGE_SIZE)
    largest = min(PLANNED_STEP_TOKENS, context)
    seconds: dict[int, float] = {}
    size = min(_STEP, largest)
    while True:
        seconds[size] = _step_seconds(executor, size, context, clock)
        if seconds[size] > target_s or size == largest:
            break
        size = min(2 * size, largest)
    return StepBudget(
        max_step_tokens=_largest_within(seconds, target_s), target_s=target_s, seconds=seconds
    )


def _largest_within(seconds: dict[int, float], target_s: float) -> int:
    """Interpolates between the last step that meets the target and the first that does not."""
    sizes = list(seconds)
    if seconds[sizes[-1]] <= target_s or len(sizes) == 1:
        return sizes[-1]
    low, high = sizes[-2:]
    share = (target_s - seconds[low]) / (seconds[high] - seconds[low])
    return max(low, int(low + share * (high - low)) // _STEP * _STEP)


def _step_seconds(executor: Executor, size: int, context: int, clock: Callable[[], float]) -> float:
    """Returns the median of a few steps after a warm-up step."""
    slices = _slices(executor.spec, size, context)
    found = []
    for _ in range(_NUM_TRIALS + 1):
        start = clock()
        executor.step(slices)
        found.append(clock() - start)
    return statistics.median(found[1:])


def _slices(spec: ModelSpec, size: int, context: int) -> list[SequenceSlice]:
    """Returns sequences that decode, and a chunk of a prompt. An encoder-decoder gets a whole
    prompt instead, and all sequences cross-attend to a text of its length."""
    pages = list(range(-(-context // PAGE_SIZE)))
    num_decoding = min(NUM_DECODING, size - 1)
    middle = min(context // 2, context - size)
    tokens = [i % spec.vocab_size for i in range(size)]
    # All sequences write their own places in the same pages, because only the time matters.
    slices = [
        SequenceSlice(token_ids=tokens[:1], start=middle + i, pages=pages, num_logits=1)
        for i in range(num_decoding)
    ]
    chunk = tokens[num_decoding:]
    last = SequenceSlice(token_ids=chunk, start=middle + num_decoding, pages=pages, num_logits=1)
    if spec.encoder is not None:
        last = SequenceSlice(token_ids=tokens[:1], start=0, pages=pages, num_logits=1)
        last.encoder_token_ids = chunk
        for one in (*slices, last):
            one.num_cross_tokens, one.cross_pages = len(chunk), pages
    return [*slices, last]

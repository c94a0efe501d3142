"""Measures the gain of speculation: the same requests with and without it, in turn, in one process.

The two engines alternate every few milliseconds, because other load on a shared machine varies over
seconds. Each has its own executor with the same weights. Executors differ by about a percent,
depending on where their pages lie in memory, so they swap roles every round. Figures are medians
over rounds; `spread` is the interquartile range over the median. Every round checks that both gave
the same tokens.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from paredown.engine.active_request import EngineTokenizer
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.executors.protocol import Executor
from paredown.progress import OnCount

# An engine runs until it is this far ahead of the other.
_SLICE_S = 0.02

# Without a prefix cache, so that each round does the same work.
_CONFIG = ScheduleConfig(prefix_cache=False)


@dataclass(frozen=True, kw_only=True)
class RequestRounds:
    """Requests that are submitted together. Each of the `rounds` has its own prompts, so that no
    answer occurs twice."""

    name: str
    rounds: Sequence[Sequence[list[int]]]
    params: SamplingParams


@dataclass(kw_only=True)
class SpeculationSpeed:
    """Rates are generated tokens per second of wall time, prompts included, with a value per
    round."""

    name: str
    without: list[float] = field(default_factory=list)
    speculating: list[float] = field(default_factory=list)
    num_different: int = 0
    tokens_per_step: float = 0.0
    acceptance: float = 0.0
    acceptance_rate: float = 0.0
    num_proposed: list[int] = field(default_factory=list)
    num_accepted: list[int] = field(default_factory=list)

    @property
    def gains(self) -> list[float]:
        """Returns the speed-up in each round."""
        return [b / a for a, b in zip(self.without, self.speculating, strict=True)]

    @property
    def gain(self) -> float:
        return statistics.median(self.gains)

    @property
    def spread(self) -> float:
        if len(self.gains) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.gains, n=4, method="inclusive")
        return (high - low) / self.gain


def compare_speculation(
    executors: tuple[Executor, Executor],
    tokenizer: EngineTokenizer,
    speculator: Speculator,
    requests: RequestRounds,
    on_progress: OnCount | None = None,
) -> SpeculationSpeed:
    """Measures answers without and with speculation, from executors with the same weights and their
    own pages. Round 0 is a warm-up."""
    plain = [Engine(executor, tokenizer, _CONFIG) for executor in executors]
    speculating_engines = [
        Engine(executor, tokenizer, _CONFIG, speculator) for executor in executors
    ]
    speed = SpeculationSpeed(name=requests.name)
    for number, prompts in enumerate(requests.rounds):
        place = number % 2
        (expected, without), (found, speculating) = _answer_in_turn(
            (plain[place], speculating_engines[1 - place]), prompts, requests.params
        )
        if number:
            speed.without.append(without)
            speed.speculating.append(speculating)
            speed.num_different += found != expected
        if on_progress is not None:
            on_progress(number + 1, len(requests.rounds))
    stats = speculator.stats
    assert stats.failure is None, stats.failure
    speed.tokens_per_step, speed.acceptance = stats.tokens_per_step, stats.acceptance
    speed.acceptance_rate = stats.acceptance_rate
    speed.num_proposed, speed.num_accepted = stats.num_proposed, stats.num_accepted
    return speed


def _answer_in_turn(
    engines: Sequence[Engine], prompts: Sequence[list[int]], params: SamplingParams
) -> list[tuple[list[list[int]], float]]:
    """Returns each engine's generated tokens and its tokens per second of its own time."""
    requests, seconds = [], []
    for engine in engines:
        start_s = time.perf_counter()
        requests.append([engine.submit(prompt, params) for prompt in prompts])
        seconds.append(time.perf_counter() - start_s)
    while busy := [index for index, engine in enumerate(engines) if engine.has_work]:
        index = min(busy, key=seconds.__getitem__)
        until_s = max(seconds[one] for one in busy) + _SLICE_S
        while seconds[index] < until_s and engines[index].has_work:
            start_s = time.perf_counter()
            engines[index].step()
            seconds[index] += time.perf_counter() - start_s
    answers = [[one.token_ids[one.num_prompt_tokens :] for one in own] for own in requests]
    rates = [sum(map(len, own)) / taken for own, taken in zip(answers, seconds, strict=True)]
    return list(zip(answers, rates, strict=True))

"""Steps of the whole engine, timed: with scheduling, drawing tokens, making text."""

import time

from paredown.cost.calibrate import MeasuredStep
from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_cost import decode_load
from paredown.engine.engine import Engine
from paredown.engine.executor import Executor
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.evaluate.quartile import lower_quartile
from paredown.models.tokenizer import Tokenizer

NUM_REQUESTS = (1, 8, 32)
_PROMPT_TOKENS = 4
_NUM_STEPS = 24


class _AnyToken:
    """A tokenizer for models of another vocabulary: ids beyond its own begin anew."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._num_tokens = len(tokenizer.vocabulary)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset()

    def decode(self, token_ids: list[int], /) -> str:
        return self._tokenizer.decode([one % self._num_tokens for one in token_ids])


def measure_engine_steps(
    executor: Executor, tokenizer: Tokenizer, formats: ModelFormats
) -> list[MeasuredStep]:
    """Greedy decoding of several numbers of requests; the lower quartile of the steps."""
    found = []
    for num_requests in NUM_REQUESTS:
        engine = Engine(executor, _AnyToken(tokenizer))
        params = SamplingParams(max_tokens=_NUM_STEPS + 1, temperature=0.0, ignore_eos=True)
        for number in range(num_requests):
            prompt = [(number + i) % executor.spec.vocab_size for i in range(_PROMPT_TOKENS)]
            engine.submit(prompt, params)
        engine.step()
        seconds = []
        for _ in range(_NUM_STEPS):
            started = time.perf_counter()
            engine.step()
            seconds.append(time.perf_counter() - started)
        found.append(
            MeasuredStep(
                spec=executor.spec,
                formats=formats,
                load=decode_load(num_requests, _PROMPT_TOKENS + _NUM_STEPS // 2),
                seconds=lower_quartile(seconds),
            )
        )
    return found

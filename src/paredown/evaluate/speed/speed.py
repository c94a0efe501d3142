"""Measures decode and prefill speed through the executor, relative to the limits of the machine.

    decode    tokens per second of one sequence, token after token, after a prompt
    prefill   tokens per second of one chunk from an empty cache, with one row of logits
    MBU       bytes of weights, keys and values that decoding reads per second, over the bandwidth
              measured on a buffer as large as what one step reads (for a small model that is a
              cache's bandwidth, which it can reach)
    MFU       arithmetic of prefill per second, over the measured peak of the arithmetic that the
              linear layers use

Models are measured in short alternating rounds; figures are medians, and `spread` is the
interquartile range over the median.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paredown.errors import ConfigError
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.kernels.probe import measure_bandwidth
from paredown.kernels.thread_plan import ThreadPlan
from paredown.progress import OnCount
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.machine import Machine
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

PREFILL_TOKENS = 256
PROMPT_TOKENS = 128
DECODE_TOKENS = 64
# A round of a slow model ends after this time.
_MAX_DECODE_S = 1.0
_MIN_DECODE_TOKENS = 2
# The number of rounds that also measure the bandwidth, which doubles a round's time.
_BANDWIDTH_ROUNDS = 3
_FIRST_TOKEN_ROUNDS = 3


class MeasuredExecutor(Executor, Protocol):
    """An executor that tells how many bytes a step reads."""

    @property
    def weight_bytes(self) -> int: ...
    @property
    def kv_token_bytes(self) -> int: ...
    @property
    def threads(self) -> ThreadPlan: ...


@dataclass(frozen=True, kw_only=True)
class Speed:
    decode_tokens_per_s: float
    decode_spread: float
    prefill_tokens_per_s: float
    prefill_spread: float
    mbu: float
    mfu: float
    decode_bytes: int


@dataclass
class Trial:
    """One model under measurement: its rates in each round, and the bandwidth in the first few."""

    executor: MeasuredExecutor
    weights: WeightSpec
    decode: list[float] = field(default_factory=list)
    prefill: list[float] = field(default_factory=list)
    bandwidth: list[float] = field(default_factory=list)

    def run_round(self) -> None:
        """Runs one prefill of a chunk and one short decode; overwrites pages from 0 on."""
        max_positions = self.executor.spec.max_positions
        num_prefill = min(PREFILL_TOKENS, max_positions)
        num_prompt = min(PROMPT_TOKENS, max_positions // 2)
        tokens = [i % self.executor.spec.vocab_size for i in range(num_prefill)]
        started = time.perf_counter()
        self.executor.step([_slice(tokens, 0)])
        self.prefill.append(num_prefill / (time.perf_counter() - started))
        # The chunk has filled the pages, so decoding continues as if after its first `num_prompt`
        # tokens.
        num_decode = min(DECODE_TOKENS, max_positions - num_prompt)
        started = time.perf_counter()
        for done in range(1, num_decode + 1):
            self.executor.step([_slice([tokens[done % num_prefill]], num_prompt + done - 1)])
            elapsed = time.perf_counter() - started
            if done >= _MIN_DECODE_TOKENS and elapsed > _MAX_DECODE_S:
                break
        self.decode.append(done / elapsed)
        if len(self.bandwidth) < _BANDWIDTH_ROUNDS:
            self.bandwidth.append(measure_bandwidth(self.executor.threads.prefill, self.step_bytes))

    @property
    def step_bytes(self) -> int:
        """Returns the bytes that a decode step reads: all weights, and keys and values of a medium
        context."""
        return self.executor.weight_bytes + self.context * self.executor.kv_token_bytes

    @property
    def context(self) -> int:
        """Returns the sequence's tokens halfway through decoding."""
        return min(PROMPT_TOKENS, self.executor.spec.max_positions // 2) + DECODE_TOKENS // 2

    def forget(self) -> None:
        """Drops the rounds so far."""
        for rates in (self.decode, self.prefill, self.bandwidth):
            rates.clear()

    def speed(self, machine: Machine) -> Speed:
        """Returns medians over the rounds. The bandwidth is a limit, so it is the highest of its
        rounds."""
        decode, prefill = statistics.median(self.decode), statistics.median(self.prefill)
        spec = self.executor.spec
        num_prefill = min(PREFILL_TOKENS, spec.max_positions)
        flops_per_token = prefill_flops(spec, num_prefill) / num_prefill
        peak = arithmetic_peak(machine, self.weights)
        return Speed(
            decode_tokens_per_s=decode,
            decode_spread=rate_spread(self.decode),
            prefill_tokens_per_s=prefill,
            prefill_spread=rate_spread(self.prefill),
            mbu=decode * self.step_bytes / max(self.bandwidth),
            mfu=prefill * flops_per_token / peak,
            decode_bytes=self.step_bytes,
        )


def run_rounds(
    trials: Sequence[Trial],
    num_rounds: int,
    on_progress: OnCount | None = None,
) -> None:
    """Measures all trials in turn, `num_rounds` times, after a warm-up round."""
    for number in range(num_rounds + 1):
        for trial in trials:
            trial.run_round()
            if number == 0:
                trial.forget()
        if on_progress is not None:
            on_progress(number + 1, num_rounds + 1)


def first_token_s(executor: Executor, num_tokens: int) -> float:
    """Returns the time to the first token of a prompt in one chunk, from an empty cache: the median
    of three. Raises ConfigError for a prompt beyond the context."""
    if num_tokens > executor.spec.max_positions:
        raise ConfigError(
            "--prompt-tokens is beyond the model's context",
            seen=f"{num_tokens} tokens, a context of {executor.spec.max_positions}",
            remedy="Give fewer.",
        )
    tokens = [i % executor.spec.vocab_size for i in range(num_tokens)]
    seconds = []
    for _ in range(_FIRST_TOKEN_ROUNDS):
        started = time.perf_counter()
        executor.step([_slice(tokens, 0)])
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def speed_pages(spec: ModelSpec) -> int:
    """Returns the number of pages that a measurement needs."""
    tokens = max(PREFILL_TOKENS, PROMPT_TOKENS + DECODE_TOKENS)
    return -(-min(tokens, spec.max_positions) // PAGE_SIZE)


def prefill_flops(spec: ModelSpec, num_tokens: int) -> float:
    """Returns the FLOPs of a prefill from position 0 with one row of logits."""
    return slice_flops(spec, start=0, num_tokens=num_tokens, num_logits=1)


def slice_flops(spec: ModelSpec, *, start: int, num_tokens: int, num_logits: int) -> float:
    """Returns the FLOPs of `num_tokens` tokens of a sequence from position `start` on.

    Each token costs 2 per weight that it passes. Scores and values cost 4 per head, dimension and
    pair of positions. A sliding window is not subtracted.
    """
    linear = 2 * spec.num_active_linear_parameters() * num_tokens
    output = 2 * spec.vocab_size * spec.hidden_size * num_logits
    pairs = num_tokens * start + num_tokens * (num_tokens + 1) // 2
    columns = sum(count * layer.attention.query_size for layer, count in spec.layer_counts.items())
    attention = 4 * columns * pairs
    return linear + output + attention


def arithmetic_peak(machine: Machine, weights: WeightSpec) -> float:
    """Returns the measured peak of the native core's arithmetic for such weights, in operations per
    second."""
    if weights.activations.startswith("int8"):
        return machine.int8_ops_per_s
    if weights.activations == "bf16":  # measured as floats where the set has no bf16 product
        return machine.bf16_flops_per_s
    return machine.fp32_flops_per_s


def _slice(tokens: list[int], start: int) -> SequenceSlice:
    pages = list(range(-(-(start + len(tokens)) // PAGE_SIZE)))
    return SequenceSlice(token_ids=tokens, start=start, pages=pages, num_logits=1)


def rate_spread(rates: list[float]) -> float:
    """Returns the interquartile range of the rates over their median."""
    if len(rates) < 2:
        return 0.0
    low, _, high = statistics.quantiles(rates, n=4, method="inclusive")
    return (high - low) / statistics.median(rates)

"""Measures an encoder: texts and tokens per second by length and number of texts, and MFU.

Texts are random tokens. All cells are measured in short alternating rounds; figures are medians,
and `spread` is the interquartile range over the median.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paredown.cost.encoder_load import encoder_flops
from paredown.evaluate.speed.speed import rate_spread
from paredown.executors.encoder_protocol import EncoderExecutor, TokenText
from paredown.progress import OnCount

# A turn encodes its texts again until so much time is over.
TURN_S = 0.1


@dataclass(frozen=True, kw_only=True)
class EncoderCell:
    """`num_texts` texts of `num_tokens` tokens, encoded at once."""

    num_texts: int
    num_tokens: int


@dataclass(frozen=True, kw_only=True)
class EncoderSpeed:
    """`mfu` is the arithmetic of the layers per second over the machine's measured peak."""

    cell: EncoderCell
    texts_per_s: float
    tokens_per_s: float
    spread: float
    mfu: float


@dataclass
class EncoderTrial:
    """One encoder and cell under measurement: texts per second in each round."""

    executor: EncoderExecutor
    cell: EncoderCell
    rates: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._texts = _random_texts(self.cell, self.executor.spec.vocab_size)

    def run_round(self) -> None:
        num_runs, start_s = 0, time.perf_counter()
        while True:
            self.executor.encode(self._texts)
            num_runs += 1
            spent_s = time.perf_counter() - start_s
            if spent_s >= TURN_S:
                break
        self.rates.append(num_runs * self.cell.num_texts / spent_s)

    def speed(self, peak_per_s: float) -> EncoderSpeed:
        """Returns medians over the rounds after the first, which warms up."""
        cell, rates = self.cell, self.rates[1:]
        texts_per_s = statistics.median(rates)
        spec = self.executor.spec
        flops = encoder_flops(cell.num_texts, cell.num_tokens, spec) / cell.num_texts
        return EncoderSpeed(
            cell=cell,
            texts_per_s=texts_per_s,
            tokens_per_s=texts_per_s * cell.num_tokens,
            spread=rate_spread(rates),
            mfu=texts_per_s * flops / peak_per_s,
        )


def run_encoder_rounds(
    trials: Sequence[EncoderTrial], num_rounds: int, on_count: OnCount | None = None
) -> None:
    """Measures all trials in turn, `num_rounds` times after a round that warms up."""
    for number in range(num_rounds + 1):
        for trial in trials:
            trial.run_round()
        if on_count is not None:
            on_count(number + 1, num_rounds + 1)


def measure_encoder(
    executor: EncoderExecutor,
    cells: Sequence[EncoderCell],
    *,
    num_rounds: int,
    peak_per_s: float,
    on_count: OnCount,
) -> list[EncoderSpeed]:
    """Returns the speed of each cell. `peak_per_s` is the machine's peak for the arithmetic of the
    linear layers, in operations per second. One round more warms up."""
    trials = [EncoderTrial(executor, cell) for cell in cells]
    run_encoder_rounds(trials, num_rounds, on_count)
    return [trial.speed(peak_per_s) for trial in trials]


def _random_texts(cell: EncoderCell, vocab_size: int) -> list[TokenText]:
    rng = np.random.default_rng(0)
    ids = rng.integers(vocab_size, size=(cell.num_texts, cell.num_tokens))
    return [TokenText(token_ids=row.tolist()) for row in ids]

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
class _Trial:
    cell: EncoderCell
    texts: list[TokenText]
    rates: list[float] = field(default_factory=list)

    def run(self, executor: EncoderExecutor) -> None:
        num_runs, start_s = 0, time.perf_counter()
        while True:
            executor.encode(self.texts)
            num_runs += 1
            spent_s = time.perf_counter() - start_s
            if spent_s >= TURN_S:
                break
        self.rates.append(num_runs * self.cell.num_texts / spent_s)


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
    trials = [_Trial(cell, _random_texts(cell, executor.spec.vocab_size)) for cell in cells]
    for number in range(num_rounds + 1):
        for trial in trials:
            trial.run(executor)
        on_count(number + 1, num_rounds + 1)
    return [_speed(trial, executor, peak_per_s) for trial in trials]


def _speed(trial: _Trial, executor: EncoderExecutor, peak_per_s: float) -> EncoderSpeed:
    cell, rates = trial.cell, trial.rates[1:]
    texts_per_s = statistics.median(rates)
    flops = encoder_flops(cell.num_texts, cell.num_tokens, executor.spec) / cell.num_texts
    return EncoderSpeed(
        cell=cell,
        texts_per_s=texts_per_s,
        tokens_per_s=texts_per_s * cell.num_tokens,
        spread=rate_spread(rates),
        mfu=texts_per_s * flops / peak_per_s,
    )


def _random_texts(cell: EncoderCell, vocab_size: int) -> list[TokenText]:
    rng = np.random.default_rng(0)
    ids = rng.integers(vocab_size, size=(cell.num_texts, cell.num_tokens))
    return [TokenText(token_ids=row.tolist()) for row in ids]

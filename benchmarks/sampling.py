"""Speed of sampling by setting: microseconds for one row of logits, in a batch, on threads.

    python benchmarks/sampling.py [--vocab 32768] [--rows 32] [--threads 1 2] [--json]

Logits are normal with a deviation of 3, requests have a prompt of 500 tokens. The time is that of
one call from Python, which returns tokens and log-probabilities, divided by its rows. Beside it:
the slow reference of the tests on one row, and the least time that reading the row's float32
logits can take at the bandwidth measured in the same run. Rounds alternate over all settings.
The least of the rounds is what the code takes with its cores to itself, the median what it took
beside whatever else ran.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from paredown.engine.sampling.make_draw_settings import make_draw_settings
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.executors.core_sampler import CoreSampler
from paredown.executors.sampler import SamplingState
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import measure_bandwidth
from references.sampling import reference_draw, reference_probabilities

SETTINGS: dict[str, SamplingParams] = {
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(temperature=0.8),
    "top-k 40": SamplingParams(temperature=0.8, top_k=40),
    "top-p 0.95": SamplingParams(top_p=0.95),
    "min-p 0.05": SamplingParams(min_p=0.05),
    "typical 0.9": SamplingParams(typical_p=0.9),
    "penalties": SamplingParams(repetition_penalty=1.1, frequency_penalty=0.2, top_p=0.95),
    "greedy, 5 logprobs": SamplingParams(temperature=0, logprobs=5),
}
NUM_PROMPT_TOKENS = 500
NUM_ROUNDS = 25


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting on a number of threads; times are microseconds for one row."""

    setting: str
    threads: int
    least_us: float
    median_us: float
    reference_us: float
    read_us: float


def states(params: SamplingParams, num_rows: int, vocab_size: int) -> list[SamplingState]:
    prompt = np.random.default_rng(1).integers(0, vocab_size, NUM_PROMPT_TOKENS).tolist()
    sampler = CoreSampler.with_threads(1)
    return [
        sampler.make_state(make_draw_settings(params, seed=i), prompt, vocab_size)
        for i in range(num_rows)
    ]


def time_rows(
    sampler: CoreSampler, logits_RV: npt.NDArray[np.float32], batch: list[SamplingState]
) -> float:
    start_s = time.perf_counter()
    sampler.sample(logits_RV, batch)
    return (time.perf_counter() - start_s) / len(batch) * 1e6


def time_reference(logits_V: npt.NDArray[np.float32], params: SamplingParams) -> float:
    start_s = time.perf_counter()
    reference_draw(
        reference_probabilities(logits_V.tolist(), params, prompt=list(range(500))), 0, 500
    )
    return (time.perf_counter() - start_s) * 1e6


def measure(vocab_size: int, num_rows: int, threads: list[int]) -> list[Row]:
    logits_RV = 3 * np.random.default_rng(0).standard_normal((num_rows, vocab_size), np.float32)
    samplers = {n: CoreSampler.with_threads(n) for n in threads}
    batches = {
        (name, n): states(params, num_rows, vocab_size)
        for name, params in SETTINGS.items()
        for n in threads
    }
    times: dict[tuple[str, int], list[float]] = {key: [] for key in batches}
    bandwidths: dict[int, list[float]] = {n: [] for n in threads}
    for round_number in range(NUM_ROUNDS + 1):
        for (name, n), batch in batches.items():
            microseconds = time_rows(samplers[n], logits_RV, batch)
            if round_number:  # the first one allocates
                times[name, n].append(microseconds)
        for n in threads:
            bandwidths[n].append(measure_bandwidth(num_threads=n, num_bytes=logits_RV.nbytes))
    reference = {name: time_reference(logits_RV[0], params) for name, params in SETTINGS.items()}
    return [
        Row(
            setting=name,
            threads=n,
            least_us=min(found),
            median_us=statistics.median(found),
            reference_us=reference[name],
            read_us=4 * vocab_size / statistics.median(bandwidths[n]) * 1e6,
        )
        for (name, n), found in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = measure(args.vocab, args.rows, args.threads)
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    print(f"{chosen_isa()}, vocabulary {args.vocab}, {args.rows} rows; microseconds per row")
    print(f"{'setting':20} {'threads':>7} {'least':>8} {'median':>8} {'reference':>10} {'read':>6}")
    for row in rows:
        print(
            f"{row.setting:20} {row.threads:7} {row.least_us:8.1f} {row.median_us:8.1f} "
            f"{row.reference_us:10.0f} {row.read_us:6.1f}"
        )


if __name__ == "__main__":
    main()

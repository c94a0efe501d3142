"""Measures attention over pages in each KV format, relative to this machine's limits.

    python benchmarks/attention.py [--isa avx2] [--threads 2] [--rounds 15] [--job decode] [--json]

The shape is one layer of Llama 3.2 1B (32 heads, 8 kv heads of 64). Decode is one token after 4,096
(bound by bytes: MBU against the bandwidth of a large buffer; sixteen layers take turns, so that no
cache holds their pages), prefill 512 tokens from nothing (bound by arithmetic: MFU counts four
operations per head dimension and key seen, against the bf16 peak of the vector units, which matrix
tiles can exceed). Rounds alternate over the formats; shown are medians, the spread from the
fastest to the slowest round, and the time on bf16 pages through the time on these of each round:
the median, the least and the most. Above 1 these pages are faster than bf16.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from paredown.kernels import _core
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import default_num_threads, measure_bandwidth, measure_peak
from paredown.spec.kv import PAGE_SIZE
from references.attention import KV_DTYPES

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, NUM_LAYERS = 32, 8, 64, 16
CONTEXT = 4096
PREFILL = 512
NUM_ROUNDS = 15


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement of a layer: the median time and its share of the machine's limit."""

    job: str
    kv_dtype: str
    median_us: float
    spread_us: float
    speed_to_bf16: float
    speed_to_bf16_least: float
    speed_to_bf16_most: float
    mbu: float
    mfu: float


class Job:
    """Attention of `num_tokens` queries at the end of a context, over layers that take turns."""

    def __init__(self, dtype: str, isa: str, threads: int, context: int, num_tokens: int) -> None:
        rng = np.random.default_rng(0)
        self.dtype, self.context, self.num_tokens = dtype, context, num_tokens
        num_pages = context // PAGE_SIZE
        self.core = _core.Attention(
            isa, threads, dtype, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, 0, NUM_LAYERS * num_pages
        )
        # For static formats: 3 standard deviations in int8.
        self.core.set_scales([3 / 127] * (2 * NUM_KV_HEADS))
        pages = rng.permutation(NUM_LAYERS * num_pages).astype(np.int32)
        self.layers = pages.reshape(NUM_LAYERS, num_pages)
        for layer in self.layers:
            keys = rng.normal(size=(context, NUM_KV_HEADS * HEAD_DIM)).astype(np.float32)
            self.core.write(layer, 0, keys, keys[::-1].copy())
        queries = rng.normal(size=(num_tokens, NUM_HEADS * HEAD_DIM)) / np.sqrt(HEAD_DIM)
        self.queries = queries.astype(np.float32)
        self.outputs = np.empty_like(self.queries)

    @property
    def layer_bytes(self) -> float:
        return self.core.num_bytes / NUM_LAYERS

    def seconds(self) -> float:
        """Returns the time of one layer: the mean over all layers in turn."""
        starts = np.array([self.context - self.num_tokens], dtype=np.int32)
        lengths = np.array([self.num_tokens], dtype=np.int32)
        offsets = np.array([0, self.context // PAGE_SIZE], dtype=np.int32)
        begin = time.perf_counter()
        for pages in self.layers:
            self.core.run(starts, lengths, offsets, pages, self.queries, self.outputs)
        return (time.perf_counter() - begin) / NUM_LAYERS


# The context, and how many tokens are computed at its end.
JOBS = {"decode": (CONTEXT, 1), "prefill": (PREFILL, PREFILL)}


def measure(isa: str, threads: int, num_rounds: int, names: list[str]) -> list[Row]:
    peak = measure_peak(threads, "bf16", isa)
    found = []
    for name in names:
        context, num_tokens = JOBS[name]
        jobs = [Job(dtype, isa, threads, context, num_tokens) for dtype in KV_DTYPES]
        times: dict[str, list[float]] = {job.dtype: [] for job in jobs}
        for round_ in range(num_rounds + 1):
            for job in jobs:
                seconds = job.seconds()
                if round_ > 0:
                    times[job.dtype].append(seconds)
        bandwidth = measure_bandwidth(threads, 1 << 27)
        num_keys = sum(range(context - num_tokens + 1, context + 1))
        for job in jobs:
            median = statistics.median(times[job.dtype])
            ratios = [bf16 / own for bf16, own in zip(times["bf16"], times[job.dtype], strict=True)]
            found.append(
                Row(
                    job=name,
                    kv_dtype=job.dtype,
                    median_us=median * 1e6,
                    spread_us=(max(times[job.dtype]) - min(times[job.dtype])) * 1e6,
                    speed_to_bf16=statistics.median(ratios),
                    speed_to_bf16_least=min(ratios),
                    speed_to_bf16_most=max(ratios),
                    mbu=job.layer_bytes / median / bandwidth,
                    mfu=4 * NUM_HEADS * HEAD_DIM * num_keys / median / peak,
                )
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa", default=None)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--job", choices=JOBS, action="append", help="default: all")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    isa = args.isa or chosen_isa()
    found = measure(isa, args.threads, args.rounds, args.job or [*JOBS])
    if args.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return
    print(f"{isa}, {args.threads} threads, one layer, medians of {args.rounds} alternating rounds")
    print(f"{'job':>8} {'pages':>11} {'us':>9} {'spread':>8} {'to bf16':>20} {'MBU':>5} {'MFU':>5}")
    for row in found:
        ratio = f"{row.speed_to_bf16:.2f} "
        ratio += f"({row.speed_to_bf16_least:.2f}..{row.speed_to_bf16_most:.2f})"
        print(
            f"{row.job:>8} {row.kv_dtype:>11} {row.median_us:>9.1f} {row.spread_us:>8.1f} "
            f"{ratio:>20} {row.mbu:>5.2f} {row.mfu:>5.2f}"
        )


if __name__ == "__main__":
    main()

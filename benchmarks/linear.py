"""Speed of the native linear layers over shapes and formats, beside this machine's limits.

    python benchmarks/linear.py [--isa avx2] [--threads 2] [--json]

Decode is one token (bound by bytes: GB/s and MBU against the bandwidth of a buffer as large as the
weight), prefill 512 tokens (bound by arithmetic: MFU against the peak of the format's arithmetic).
Rounds alternate over the formats, so that a neighbour's load hits all of them; medians are shown.
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
from linear_reference import LinearCase, random_case
from paredown.kernels import _core
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import default_num_threads, measure_bandwidth

SHAPES = ((896, 384), (2048, 2048), (8192, 2048))
FORMATS = (
    ("fp32", None),
    ("bf16", None),
    ("fp16", None),
    ("int8", None),
    ("int4", 128),
    ("int4", 32),
)
PEAK_UNITS = {"fp32": "fp32", "fp16": "fp32", "bf16": "bf16", "int8": "int8", "int4": "int8"}
NUM_TOKENS = (1, 512)
NUM_ROUNDS = 9


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement: median time and what it is of the machine's limit."""

    rows: int
    columns: int
    format: str
    num_tokens: int
    median_us: float
    spread_us: float
    mbu: float
    mfu: float


@dataclass(frozen=True, kw_only=True)
class Job:
    """A weight with its packed form, ready to run."""

    case: LinearCase
    name: str
    linear: _core.Linear

    @classmethod
    def make(
        cls, kind: str, group: int | None, shape: tuple[int, int], isa: str, threads: int
    ) -> "Job":
        case = random_case(np.random.default_rng(0), kind, shape, group_size=group)
        linear = _core.Linear(
            isa,
            threads,
            kind,
            case.values_OI,
            case.group_size,
            case.scales_OG,
            case.zero_points_OG,
            case.bias_O,
            case.activations,
            case.input_scale or 0.0,
        )
        return cls(case=case, name=kind if group is None else f"{kind}-g{group}", linear=linear)

    def seconds(self, x_TI: np.ndarray, y_TO: np.ndarray) -> float:
        start = time.perf_counter()
        self.linear.run(x_TI, y_TO)
        return time.perf_counter() - start


def measure_shape(shape: tuple[int, int], isa: str, threads: int) -> list[Row]:
    rows, columns = shape
    peaks = {unit: _core.measure_peak(isa, threads, unit) for unit in ("fp32", "bf16", "int8")}
    jobs = [Job.make(kind, group, shape, isa, threads) for kind, group in FORMATS]
    found = []
    for num_tokens in NUM_TOKENS:
        x = np.random.default_rng(1).normal(size=(num_tokens, columns)).astype(np.float32)
        y = np.empty((num_tokens, rows), dtype=np.float32)
        times: dict[str, list[float]] = {job.name: [] for job in jobs}
        for _ in range(NUM_ROUNDS):
            for job in jobs:
                job.seconds(x, y)
                times[job.name].append(job.seconds(x, y))
        for job in jobs:
            median = statistics.median(times[job.name])
            bandwidth = measure_bandwidth(threads, max(job.linear.num_bytes, 1 << 20))
            found.append(
                Row(
                    rows=rows,
                    columns=columns,
                    format=job.name,
                    num_tokens=num_tokens,
                    median_us=median * 1e6,
                    spread_us=(max(times[job.name]) - min(times[job.name])) * 1e6,
                    mbu=job.linear.num_bytes / median / bandwidth,
                    mfu=2 * num_tokens * rows * columns / median / peaks[PEAK_UNITS[job.case.kind]],
                )
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa", default=None)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    isa = args.isa or chosen_isa()
    found = [row for shape in SHAPES for row in measure_shape(shape, isa, args.threads)]
    if args.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return
    print(f"{isa}, {args.threads} threads, medians of {NUM_ROUNDS} alternating rounds")
    print(
        f"{'weight':>12} {'format':>9} {'tokens':>6} {'us':>9} {'spread':>8} {'MBU':>5} {'MFU':>5}"
    )
    for row in found:
        print(
            f"{row.rows:>6}x{row.columns:<5} {row.format:>9} {row.num_tokens:>6} "
            f"{row.median_us:>9.1f} {row.spread_us:>8.1f} {row.mbu:>5.2f} {row.mfu:>5.2f}"
        )


if __name__ == "__main__":
    main()

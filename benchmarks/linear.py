"""Measures the native linear layers over shapes and formats, relative to oneDNN and this machine.

    python benchmarks/linear.py [--isa avx2] [--threads 2] [--json]

One token is decode, bound by bytes: MBU is held against the bandwidth of a buffer as large as the
weight. 8 and 32 are batches; 512 is a prompt, bound by arithmetic: MFU is held against the peak of
the format's products. oneDNN is reached through PyTorch: int8 products of inputs that are quantized
already, and bf16 products; native times include putting the input into its form. Rounds alternate
over all, so that a neighbour's load hits all of them; medians are shown.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from drivers.native_linear import native_linear
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import default_num_threads, measure_bandwidth, measure_peak
from references.linear import LinearCase, random_case, random_stepped_case

SHAPES = ((896, 384), (2048, 2048), (8192, 2048))
# Name, weight, columns of a group, activations, and the arithmetic whose peak is the limit.
Form = tuple[str, int | None, str, str]
FORMATS: dict[str, Form] = {
    "fp32": ("fp32", None, "fp32", "fp32"),
    "fp16": ("fp16", None, "fp32", "fp32"),
    "bf16": ("bf16", None, "bf16", "bf16"),
    "fp8": ("fp8", None, "bf16", "bf16"),
    "w8a8": ("int8", None, "int8_row", "int8"),
    "int8": ("int8", None, "int8_group", "int8"),
    "int6-g128": ("int6", 128, "int8_group", "int8"),
    "int4-g128": ("int4", 128, "int8_group", "int8"),
    "int4-g32": ("int4", 32, "int8_group", "int8"),
    "w4a8-g128-qoq": ("int4", 128, "int8_row", "int8"),
    "w4a8-g32-qoq": ("int4", 32, "int8_row", "int8"),
    "int2-g32": ("int2", 32, "int8_group", "int8"),
}
NUM_TOKENS = (1, 8, 32, 512)
NUM_ROUNDS = 9
# oneDNN's threads spin for some milliseconds after a call, which would slow the next job.
ONEDNN_REST_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement: the median time and its share of the machine's limit."""

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
    """A layer ready to run. `start(num_tokens)` makes an input and returns the call to time, after
    which nothing runs for `rest_s`."""

    name: str
    num_bytes: int
    peak_unit: str
    start: Callable[[int], Callable[[], object]]
    rest_s: float = 0.0


def case_of(name: str, form: Form, shape: tuple[int, int]) -> LinearCase:
    kind, group, activations, _ = form
    rng = np.random.default_rng(0)
    if name.endswith("-qoq"):
        assert group is not None
        return random_stepped_case(rng, shape, group_size=group, activations=activations)
    return random_case(rng, kind, shape, group_size=group, activations=activations)


def native_job(
    name: str,
    shape: tuple[int, int],
    form: Form,
    isa: str,
    threads: int,
) -> Job:
    unit = form[-1]
    linear = native_linear(case_of(name, form, shape), isa, threads)

    def start(num_tokens: int) -> Callable[[], object]:
        x = np.random.default_rng(1).normal(size=(num_tokens, shape[1])).astype(np.float32)
        y = np.empty((num_tokens, shape[0]), dtype=np.float32)
        return lambda: linear.run(x, y)

    return Job(name=name, num_bytes=linear.num_bytes, peak_unit=unit, start=start)


def onednn_jobs(shape: tuple[int, int]) -> list[Job]:
    rows, columns = shape
    codes = torch.randint(-127, 128, shape, dtype=torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(codes, None)
    scales = torch.full((rows,), 0.01)
    zeros = torch.zeros(rows, dtype=torch.int64)
    weight = torch.randn(shape).bfloat16()

    def start_int8(num_tokens: int) -> Callable[[], object]:
        x = torch.randint(0, 255, (num_tokens, columns), dtype=torch.uint8)
        return lambda: torch.ops.onednn.qlinear_pointwise(
            x, 0.01, 128, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )

    def start_bf16(num_tokens: int) -> Callable[[], object]:
        x = torch.randn(num_tokens, columns).bfloat16()
        return lambda: torch.nn.functional.linear(x, weight)

    size = rows * columns
    rest_s = ONEDNN_REST_S
    return [
        Job(name="onednn-int8", num_bytes=size, peak_unit="int8", start=start_int8, rest_s=rest_s),
        Job(
            name="onednn-bf16",
            num_bytes=2 * size,
            peak_unit="bf16",
            start=start_bf16,
            rest_s=rest_s,
        ),
    ]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure_shape(shape: tuple[int, int], isa: str, threads: int) -> list[Row]:
    rows, columns = shape
    peaks = {unit: measure_peak(threads, unit, isa) for unit in ("fp32", "bf16", "int8")}
    jobs = [native_job(name, shape, form, isa, threads) for name, form in FORMATS.items()]
    jobs += onednn_jobs(shape)
    found = []
    for num_tokens in NUM_TOKENS:
        calls = [job.start(num_tokens) for job in jobs]
        times: list[list[float]] = [[] for _ in jobs]
        for _ in range(NUM_ROUNDS):
            for job, call, measured in zip(jobs, calls, times, strict=True):
                call()
                measured.append(seconds(call))
                time.sleep(job.rest_s)
        for job, measured in zip(jobs, times, strict=True):
            median = statistics.median(measured)
            bandwidth = measure_bandwidth(threads, max(job.num_bytes, 1 << 20))
            found.append(
                Row(
                    rows=rows,
                    columns=columns,
                    format=job.name,
                    num_tokens=num_tokens,
                    median_us=median * 1e6,
                    spread_us=(max(measured) - min(measured)) * 1e6,
                    mbu=job.num_bytes / median / bandwidth,
                    mfu=2 * num_tokens * rows * columns / median / peaks[job.peak_unit],
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
    torch.set_num_threads(args.threads)
    found = [row for shape in SHAPES for row in measure_shape(shape, isa, args.threads)]
    if args.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return
    print(f"{isa}, {args.threads} threads, medians of {NUM_ROUNDS} alternating rounds")
    print(
        f"{'weight':>12} {'format':>12} {'tokens':>6} {'us':>9} {'spread':>8} "
        f"{'Gop/s':>7} {'MBU':>5} {'MFU':>5}"
    )
    for row in found:
        rate = 2 * row.num_tokens * row.rows * row.columns / row.median_us / 1e3
        print(
            f"{row.rows:>6}x{row.columns:<5} {row.format:>12} {row.num_tokens:>6} "
            f"{row.median_us:>9.1f} {row.spread_us:>8.1f} {rate:>7.0f} {row.mbu:>5.2f} "
            f"{row.mfu:>5.2f}"
        )


if __name__ == "__main__":
    main()

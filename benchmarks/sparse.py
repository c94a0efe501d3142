"""Measures weights whose zeros are a bit each beside dense ones: a whole model of true shapes.

    python -m benchmarks.sparse [--model llama-3.2-1b] [--formats int8 int8-g128 bf16]
                                [--zeros 0.3 0.5 0.7 2:4] [--rounds 7] [--threads N] [--json]

Both models have the same random weights, once packed as bitmaps and once dense, and the same dense
output layer; layers repeat each other, since speed does not depend on values. Decode is 32 steps of
one sequence after 64 tokens, prefill a prompt of 512. Rounds alternate between the two, and the
bandwidth of reading as many bytes as a dense step reads is measured in each round. `share` is the
speed gained beside the ratio of bytes that a step reads: 1 where every byte saved is time saved.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from benchmarks.checkpoints.shapes import CONFIGS
from drivers.native_linear import source_of
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.kernels.bitmap_choice import BitmapChoice
from paredown.kernels.isa import chosen_isa
from paredown.kernels.linear_source import LinearSource
from paredown.kernels.native_model import NativeModel
from paredown.kernels.probe import default_num_threads, measure_bandwidth
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.config import spec_from_config
from paredown.spec.context import Context
from paredown.spec.kv import PAGE_SIZE, KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.roles import row_groups
from references.bitmap import random_zeros, two_of_four, with_zeros
from references.linear import random_case

# By name: kind, columns of a group, and inputs.
FORMATS: dict[str, tuple[str, int | None, str]] = {
    "int8": ("int8", None, "int8_row"),
    "int8-g128": ("int8", 128, "int8_group"),
    "int8-g32": ("int8", 32, "int8_group"),
    "bf16": ("bf16", None, "bf16"),
}
ZEROS = ("0.3", "0.5", "0.7", "2:4")
PROMPT_TOKENS, NUM_STEPS = 64, 32
PREFILL_TOKENS = 512
NUM_PAGES = (PREFILL_TOKENS + NUM_STEPS) // PAGE_SIZE + 1
CHOICES: tuple[BitmapChoice, BitmapChoice] = ("never", "always")
Sources = dict[str, LinearSource]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One format with one pattern of zeros. Speeds are medians; ratios, of bitmap over dense and
    made round by round, are the median, the least and the greatest. `mbu` is the dense model's."""

    format: str
    zeros: str
    dense_bytes: int
    bitmap_bytes: int
    bytes_ratio: float
    decode_tokens_per_s: tuple[float, float]
    decode_ratio: tuple[float, float, float]
    share: float
    prefill_tokens_per_s: tuple[float, float]
    prefill_ratio: tuple[float, float, float]
    mbu: float


def zeros_of(rng: np.random.Generator, shape: tuple[int, int], zeros: str) -> npt.NDArray[np.bool_]:
    return two_of_four(rng, shape) if zeros == "2:4" else random_zeros(rng, shape, float(zeros))


def random_sources(spec: ModelSpec, form: str, zeros: str) -> Sources:
    """Returns one weight for each role of a layer, and the output layer, by role."""
    rng = np.random.default_rng(0)
    kind, group_size, activations = FORMATS[form]

    def source(rows: int, columns: int, share: str | None) -> LinearSource:
        case = random_case(
            rng, kind, (rows, columns), group_size=group_size, activations=activations
        )
        if share is not None:
            case = with_zeros(case, zeros_of(rng, (rows, columns), share))
        if case.scales_OG is not None:
            scales = case.scales_OG / np.float32(32 * np.sqrt(columns))
            case = replace(case, scales_OG=scales.astype(np.float32))
        return source_of(replace(case, bias_O=None))

    layer = spec.layers[0]
    shapes = layer.linear_shapes(spec.hidden_size)
    found = {"output": source(spec.vocab_size, spec.hidden_size, None)}
    for group, roles in row_groups(shapes).items():
        rows = sum(shapes[role][0] for role in roles)
        found[group] = source(rows, shapes[roles[0]][1], zeros)
    return found


class Runner:
    """A model of those weights, ready to be timed."""

    def __init__(
        self, spec: ModelSpec, sources: Sources, bitmap: BitmapChoice, num_threads: int
    ) -> None:
        kv = KVSpec(num_pages=NUM_PAGES, dtype="bf16")
        model = NativeModel(Context(spec=spec), kv, ThreadPlan.resolve(num_threads))
        table = np.random.default_rng(1).integers(0, 128, (spec.vocab_size, spec.hidden_size))
        model.set_embedding("bf16", (0x3D00 + table).astype(np.uint16))
        norm = np.ones(spec.hidden_size, dtype=np.float32)
        model.set_norm("final_norm", 0, norm, None)
        model.add_linear("output", 0, replace(sources["output"], bitmap="never"))
        for number, layer in enumerate(spec.layers):
            for role in layer.norms.by_role():
                model.set_norm(role, number, norm, None)
            for role, source in sources.items():
                if role != "output":
                    model.add_linear(role, number, replace(source, bitmap=bitmap))
        self._executor = NativeExecutor(model, kv)
        self.weight_bytes = model.weight_bytes
        self._step(range(PROMPT_TOKENS), 0)

    def decode_s(self) -> float:
        started = time.perf_counter()
        for step in range(NUM_STEPS):
            self._step([step], PROMPT_TOKENS + step)
        return time.perf_counter() - started

    def prefill_s(self) -> float:
        started = time.perf_counter()
        self._step(range(PREFILL_TOKENS), 0)
        return time.perf_counter() - started

    def _step(self, token_ids: Sequence[int], start: int) -> None:
        pages = list(range(NUM_PAGES))
        self._executor.step(
            [SequenceSlice(token_ids=list(token_ids), start=start, pages=pages, num_logits=1)]
        )


def ratios(dense: Sequence[float], bitmap: Sequence[float]) -> tuple[float, float, float]:
    """Returns how many times as fast the bitmap is: median, least and greatest."""
    found = [one / other for one, other in zip(dense, bitmap, strict=True)]
    return statistics.median(found), min(found), max(found)


def measure(spec: ModelSpec, form: str, zeros: str, num_threads: int, num_rounds: int) -> Row:
    sources = random_sources(spec, form, zeros)
    dense, bitmap = (Runner(spec, sources, choice, num_threads) for choice in CHOICES)
    seconds: dict[str, list[float]] = {}
    bandwidths = []

    def turn(name: str, call: Callable[[], float]) -> None:
        seconds.setdefault(name, []).append(call())

    for number in range(num_rounds):
        order = [("dense", dense), ("bitmap", bitmap)]
        for name, runner in order if number % 2 == 0 else reversed(order):
            turn(f"{name} decode", runner.decode_s)
        bandwidths.append(measure_bandwidth(num_threads, dense.weight_bytes))
        for name, runner in order if number % 2 == 0 else reversed(order):
            turn(f"{name} prefill", runner.prefill_s)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    bytes_ratio = dense.weight_bytes / bitmap.weight_bytes
    decode_ratio = ratios(seconds["dense decode"], seconds["bitmap decode"])
    return Row(
        format=form,
        zeros=zeros,
        dense_bytes=dense.weight_bytes,
        bitmap_bytes=bitmap.weight_bytes,
        bytes_ratio=bytes_ratio,
        decode_tokens_per_s=(
            NUM_STEPS / median["dense decode"],
            NUM_STEPS / median["bitmap decode"],
        ),
        decode_ratio=decode_ratio,
        share=decode_ratio[0] / bytes_ratio,
        prefill_tokens_per_s=(
            PREFILL_TOKENS / median["dense prefill"],
            PREFILL_TOKENS / median["bitmap prefill"],
        ),
        prefill_ratio=ratios(seconds["dense prefill"], seconds["bitmap prefill"]),
        mbu=dense.weight_bytes * NUM_STEPS / median["dense decode"] / statistics.median(bandwidths),
    )


def cells(row: Row) -> list[str]:
    def spread(ratio: tuple[float, float, float]) -> str:
        return f"{ratio[0]:.2f} ({ratio[1]:.2f}..{ratio[2]:.2f})"

    return [
        row.format,
        row.zeros,
        f"{row.dense_bytes / 1e6:,.0f}",
        f"{row.bitmap_bytes / 1e6:,.0f}",
        f"{row.bytes_ratio:.2f}",
        "{:.1f} / {:.1f}".format(*row.decode_tokens_per_s),
        spread(row.decode_ratio),
        f"{row.share:.2f}",
        "{:.0f} / {:.0f}".format(*row.prefill_tokens_per_s),
        spread(row.prefill_ratio),
        f"{row.mbu:.2f}",
    ]


HEADINGS = (
    "weights",
    "zeros",
    "dense, MB",
    "bitmap, MB",
    "ratio of bytes",
    "decode, tokens/s",
    "times as fast",
    "share",
    "prefill, tokens/s",
    "times as fast",
    "MBU, dense",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=list(CONFIGS), default="llama-3.2-1b")
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--zeros", nargs="+", default=list(ZEROS), help="shares, or 2:4")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    spec = spec_from_config(dict(CONFIGS[args.model]))
    found = []
    for form in args.formats:
        for zeros in args.zeros:
            found.append(measure(spec, form, zeros, args.threads, args.rounds))
            if not args.json:
                print(" | ".join(cells(found[-1])), flush=True)
    if args.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return
    table = Table(*HEADINGS, title=f"{args.model}, {chosen_isa()}, {args.threads} threads")
    for row in found:
        table.add_row(*cells(row))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()

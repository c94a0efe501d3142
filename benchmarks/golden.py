"""Measures how golden logits differ between instruction sets, and what checking them costs at a
load.

    python -m benchmarks.golden [MODEL] [--json]

Every format is loaded once on each set that this machine has. The difference is the one that
`evaluate/verify/golden.py` holds against its tolerance, the largest over all pairs of sets; for
scale, the
smallest between two formats on one set. Costs are medians in milliseconds on the best set.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from paredown.compress.compress import compress
from paredown.evaluate.quality.rows import Logits
from paredown.evaluate.verify.fingerprint import make_fingerprint
from paredown.evaluate.verify.golden import (
    GOLDEN_KV,
    TOLERANCE,
    GoldenLogits,
    log_probabilities,
    make_golden,
    run_golden,
)
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model

FORMATS = (
    *("fp16", "bf16", "fp8", "int8", "int8-asym", "w8a8", "int6-g128", "int5-g64", "int4-g32"),
    *("int4-g32-asym", "int4-g128", "int4-g128-head-int8", "int3-g32-asym", "int2-g32"),
)
NUM_LOADS = 9


def golden_logits(checkpoint: Checkpoint) -> dict[str, Logits]:
    """Returns the logits by instruction set."""
    found = {}
    for isa in supported_isas():
        os.environ[ENVIRONMENT_VARIABLE] = isa
        found[isa] = run_golden(
            load_executor(checkpoint, RunOptions(num_pages=GOLDEN_KV.num_pages))
        )
    del os.environ[ENVIRONMENT_VARIABLE]
    return found


def difference(golden: GoldenLogits, logits_TV: Logits) -> float:
    return golden.difference(log_probabilities(logits_TV, np.array(golden.sampled_TK)))


def largest_difference(logits: dict[str, Logits]) -> tuple[float, str]:
    """Returns the largest difference with its two sets, the verifying one first."""
    return max(
        (difference(make_golden(logits[there], {}), logits[here]), f"{there}, {here}")
        for there, here in itertools.permutations(logits, 2)
    )


def median_ms(run: Callable[[], object]) -> float:
    times = []
    for _ in range(NUM_LOADS):
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def costs(checkpoint: Checkpoint) -> dict[str, float]:
    executor: LoadedExecutor = load_executor(checkpoint)
    fingerprint = make_fingerprint(checkpoint, executor)
    return {
        "load_ms": median_ms(lambda: load_executor(checkpoint)),
        "files_ms": median_ms(lambda: fingerprint.check_files(checkpoint, executor)),
        "logits_ms": median_ms(lambda: fingerprint.check_logits(checkpoint, executor)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    source = Checkpoint.open(resolve_model(args.model))
    rows: dict[str, dict[str, object]] = {}
    best: dict[str, Logits] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMATS:
            compress(source, Path(folder) / name, name)
            checkpoint = Checkpoint.open(Path(folder) / name)
            logits = golden_logits(checkpoint)
            best[name] = logits[supported_isas()[-1]]
            largest, sets = largest_difference(logits)
            rows[name] = {"difference": largest, "sets": sets, **costs(checkpoint)}
            if not args.json:
                print(f"{name:22}" + "  ".join(_cell(*item) for item in rows[name].items()))
    nearest = min(
        (difference(make_golden(best[there], {}), best[here]), f"{there}, {here}")
        for there, here in itertools.permutations(best, 2)
    )
    summary = {"tolerance": TOLERANCE, "nearest_formats": nearest}
    print(json.dumps({"formats": rows, **summary}, indent=2) if args.json else summary)


def _cell(name: str, value: object) -> str:
    return f"{name} {value:.4f}" if isinstance(value, float) else f"{value:24}"


if __name__ == "__main__":
    main()

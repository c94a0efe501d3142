"""What huge pages give: memory bandwidth and one-token linear layers, with and without them.

    python benchmarks/huge_pages.py [--threads 2] [--json]

Each round measures in two fresh processes, one of which the system is told to give no huge pages
(prctl, PR_SET_THP_DISABLE); figures are medians over alternating rounds. Where the system's setting
(/sys/kernel/mm/transparent_hugepage/enabled) is `never`, both are without.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from paredown.kernels import _core
from paredown.kernels.isa import chosen_isa
from paredown.kernels.linear_source import LinearSource
from paredown.kernels.probe import default_num_threads, measure_bandwidth
from paredown.units import MEBI

NUM_ROUNDS = 5
NUM_RUNS = 50
BUFFERS_BYTES = (8 * MEBI, 256 * MEBI)
ROWS, COLUMNS = 8192, 8192
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_PR_SET_THP_DISABLE = 41


def forbid_huge_pages() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_THP_DISABLE)")


def measure(threads: int) -> dict[str, float]:
    """Gigabytes per second of plain reads, and of a decode-like product with int8 weights."""
    found = {}
    for num_bytes in BUFFERS_BYTES:
        bandwidth = measure_bandwidth(threads, num_bytes)
        found[f"read {num_bytes // MEBI} MiB, GB/s"] = bandwidth / 1e9
    codes = np.random.default_rng(0).integers(0, 256, (ROWS, COLUMNS), dtype=np.uint8)
    scales = np.ones((ROWS, 1), dtype=np.float32)
    weight = LinearSource(
        kind="int8",
        activations="int8_row",
        group_size=COLUMNS,
        arrays={"values": codes, "scales": scales},
    )
    linear = _core.Linear(chosen_isa(), threads, weight.fields())
    x = np.ones((1, COLUMNS), dtype=np.float32)
    y = np.empty((1, ROWS), dtype=np.float32)
    times = []
    for _ in range(NUM_RUNS):
        start = time.perf_counter()
        linear.run(x, y)
        times.append(time.perf_counter() - start)
    found[f"int8 {ROWS} x {COLUMNS}, GB/s"] = linear.num_bytes / statistics.median(times) / 1e9
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=["with", "without"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        if args.child == "without":
            forbid_huge_pages()
        print(json.dumps(measure(args.threads)))
        return
    rounds: dict[str, list[dict[str, float]]] = {"with": [], "without": []}
    for _ in range(NUM_ROUNDS):
        for kind, results in rounds.items():
            command = [sys.executable, __file__, "--threads", str(args.threads), "--child", kind]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results.append(json.loads(output))
    found = {
        name: {
            kind: statistics.median(result[name] for result in results)
            for kind, results in rounds.items()
        }
        for name in rounds["with"][0]
    }
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{chosen_isa()}, {args.threads} threads, huge pages: {SETTING.read_text().strip()}")
    for name, row in found.items():
        print(f"{name:>28}: with {row['with']:.1f}, without {row['without']:.1f}")


if __name__ == "__main__":
    main()

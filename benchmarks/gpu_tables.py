"""Measured times of matrix products on GPUs, by others, against the roofline and a fit of it.

    python -m benchmarks.gpu_tables [--data ../shared/data/perf_tables] [--json]

The tables are Vidur's profiles of the linear layers of Llama models in fp16 (Agrawal et al., MLSys
2024, github.com/microsoft/vidur): the median of each over some runs. For each table: how near the
roofline comes to what was measured (it must stay below), and the mean error of `Efficiency`
(src/paredown/cost/efficiency.py) fitted to two thirds of the numbers of tokens on the other third.
Across: what is fitted to one model on the A100, on the other model.
"""

import argparse
import csv
import json
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from paredown.cost.efficiency import Efficiency, MeasuredProduct, fit_efficiency
from paredown.cost.machines import MACHINES
from paredown.cost.roofline import Roofs

TABLES = {
    "a100 Llama-2-7b": ("a100", "a100__meta-llama__Llama-2-7b-hf__mlp.csv"),
    "a100 Llama-3-8B": ("a100", "a100__meta-llama__Meta-Llama-3-8B__mlp.csv"),
    "h100 Llama-2-7b": ("h100", "h100__meta-llama__Llama-2-7b-hf__mlp.csv"),
}
# Of the numbers of tokens in order, every third is held out.
HELD_OUT = 3
MAX_ERROR = 0.20
_BYTES = 2


@dataclass(frozen=True, kw_only=True)
class Row:
    """`best_share` is the largest share of a measured time that the roofline explains."""

    name: str
    num_rows: int
    best_share: float
    median_share: float
    held_out_rows: int
    held_out_error: float
    call_us: float
    arithmetic: float
    memory: float


def read_products(path: Path) -> list[tuple[int, MeasuredProduct]]:
    """Number of tokens and product, of every linear layer in every row."""
    found = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            num_tokens, num_shares = int(row["num_tokens"]), int(row["num_tensor_parallel_workers"])
            hidden, wide = int(row["n_embd"]), int(row["n_expanded_embd"])
            heads, kv_heads = int(row["n_head"]), int(row["n_kv_head"])
            shapes = {
                "attn_pre_proj": ((heads + 2 * kv_heads) * hidden // heads // num_shares, hidden),
                "attn_post_proj": (hidden, hidden // num_shares),
                "mlp_up_proj": (2 * wide // num_shares, hidden),
                "mlp_down_proj": (hidden, wide // num_shares),
            }
            for name, (out, columns) in shapes.items():
                product = MeasuredProduct(
                    flops=2.0 * num_tokens * out * columns,
                    bytes=float(_BYTES * (out * columns + num_tokens * (out + columns))),
                    seconds=float(row[f"time_stats.{name}.median"]) * 1e-3,
                )
                found.append((num_tokens, product))
    return found


def split(
    products: Sequence[tuple[int, MeasuredProduct]],
) -> tuple[list[MeasuredProduct], list[MeasuredProduct]]:
    """To fit, and held out: whole numbers of tokens go to one side."""
    held = set(sorted({tokens for tokens, _ in products})[1::HELD_OUT])
    kept = [one for tokens, one in products if tokens not in held]
    return kept, [one for tokens, one in products if tokens in held]


def mean_error(products: Iterable[MeasuredProduct], roofs: Roofs, fit: Efficiency) -> float:
    return statistics.mean(abs(one.predicted_s(roofs, fit) / one.seconds - 1) for one in products)


def check_table(name: str, machine: str, path: Path) -> Row:
    roofs, products = MACHINES[machine], read_products(path)
    kept, held = split(products)
    fit = fit_efficiency(kept, roofs, name)
    shares = [one.best_s(roofs) / one.seconds for _, one in products]
    return Row(
        name=name,
        num_rows=len(products),
        best_share=max(shares),
        median_share=statistics.median(shares),
        held_out_rows=len(held),
        held_out_error=mean_error(held, roofs, fit),
        call_us=fit.call_s * 1e6,
        arithmetic=fit.arithmetic,
        memory=fit.memory,
    )


def across(folder: Path) -> float:
    """Mean error on Llama-3-8B's products of what was fitted to all of Llama-2-7b's."""
    roofs = MACHINES["a100"]
    known = [one for _, one in read_products(folder / TABLES["a100 Llama-2-7b"][1])]
    other = [one for _, one in read_products(folder / TABLES["a100 Llama-3-8B"][1])]
    return mean_error(other, roofs, fit_efficiency(known, roofs, "a100 Llama-2-7b"))


def main() -> int:
    """1 where the roofline is above what was measured, or an error above the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("PAREDOWN_DATA"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.data is None:
        parser.error("--data, or $PAREDOWN_DATA, must name the folder that has perf_tables")
    folder = args.data / "perf_tables" / "vidur"
    rows = [check_table(name, key, folder / file) for name, (key, file) in TABLES.items()]
    transfer = across(folder)
    passed = transfer <= MAX_ERROR and all(
        row.best_share <= 1 and row.held_out_error <= MAX_ERROR for row in rows
    )
    if args.json:
        found = {"rows": [asdict(row) for row in rows], "across": transfer, "passed": passed}
        print(json.dumps(found, indent=2))
        return 0 if passed else 1
    print(
        f"{'table':>16} {'products':>8} {'roof/time, most':>15} {'median':>6} {'held out':>8} "
        f"{'error':>6} {'call us':>7} {'arith.':>6} {'memory':>6}"
    )
    for row in rows:
        print(
            f"{row.name:>16} {row.num_rows:>8} {row.best_share:>15.2f} {row.median_share:>6.2f} "
            f"{row.held_out_rows:>8} {row.held_out_error:>6.1%} {row.call_us:>7.1f} "
            f"{row.arithmetic:>6.2f} {row.memory:>6.2f}"
        )
    print(f"fitted to Llama-2-7b, error on Llama-3-8B (a100): {transfer:.1%}")
    print(
        f"bars: roof/time at most 1, errors at most {MAX_ERROR:.0%}: {'pass' if passed else 'FAIL'}"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

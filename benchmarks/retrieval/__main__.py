"""Measures exact search, and what is found with the scores of retrieval.

    python -m benchmarks.retrieval speed [--dtypes int8 bf16 fp32] [--vectors 1000000] [--rounds 15]
    python -m benchmarks.retrieval quality --model all-MiniLM-L6-v2 [--mrpc FOLDER] [--pairs N]

`speed` builds indexes of random vectors in --work once (half a minute for the million), and
alternates between searches and readings of as many bytes from memory with all threads. Shown are
medians, and the ratio of the two, round by round, with its least and greatest. `products` is what
the products of a search take at the measured peak of the processor: where they take longer than
reading, they are the limit. `quality` finds MRPC's paraphrases (quality.py).
"""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.retrieval import quality, speed
from benchmarks.retrieval.encoded import encode
from benchmarks.retrieval.paraphrases import read_paraphrases
from paredown.evaluate.tasks.glue_file import DATA_FOLDER
from paredown.evaluate.texts.text import DATA_VARIABLE
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import default_num_threads
from paredown.kernels.vector_search import VECTOR_DTYPES


def run_speed(args: argparse.Namespace) -> list[dict[str, object]]:
    found = []
    for case in speed.cases(tuple(args.dtypes)):
        folder = args.work / f"{case.folder_name}-{args.vectors}"
        speed.build(case, folder, args.vectors, args.sentences)
        found.append(speed.measure(case, folder, args.threads, args.rounds))
    table = Table(title=f"{chosen_isa()}, {args.threads} threads, medians of {args.rounds} rounds")
    for name in ("index", "dims", "vectors", "MB", "search ms", "read ms", "products ms", "ratio"):
        table.add_column(name, justify="left" if name == "index" else "right")
    for row in found:
        table.add_row(
            f"{row.case.dtype}, {row.case.name}",
            str(row.case.num_dims),
            f"{row.num_vectors:,}",
            f"{row.num_bytes / 1e6:.0f}",
            f"{row.search_s * 1e3:.2f}",
            f"{row.read_s * 1e3:.2f}",
            f"{row.products_s * 1e3:.2f}",
            f"{row.ratio:.2f} ({row.ratio_least:.2f}..{row.ratio_most:.2f})",
        )
    Console(width=120).print(table)
    return [asdict(row) for row in found]


def run_quality(args: argparse.Namespace) -> list[dict[str, object]]:
    task = read_paraphrases(args.mrpc).some(args.pairs)
    encoded = encode(args.model, list(task.sentences), args.threads)
    table = Table(title=f"{len(task.pairs):,} pairs among {len(task.sentences):,} sentences")
    for name in ("score", "kept in", "recall@1", "recall@10", "MRR", "s"):
        table.add_column(name, justify="left" if name in ("score", "kept in") else "right")
    found = []
    for row in quality.measure(task, encoded, args.work):
        found.append(row)
        shares = (row.recall_at_1, row.recall_at_10, row.reciprocal_rank)
        cells = (f"{100 * share:.2f}" for share in shares)
        table.add_row(row.score, row.dtype, *cells, f"{row.seconds:.1f}")
    Console(width=120).print(table)
    return [asdict(row) for row in found]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = Path(os.environ.get(DATA_VARIABLE, "."))
    parser.add_argument("part", choices=("speed", "quality"))
    parser.add_argument("--work", type=Path, default=Path("runs") / "retrieval")
    parser.add_argument("--dtypes", nargs="+", choices=VECTOR_DTYPES, default=["int8", "bf16"])
    parser.add_argument("--vectors", type=int, default=speed.NUM_VECTORS)
    parser.add_argument("--sentences", type=int, default=speed.NUM_SENTENCES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--model", type=Path, help="folder of a sentence encoder")
    parser.add_argument("--mrpc", type=Path, default=data / DATA_FOLDER / "MRPC")
    parser.add_argument("--pairs", type=int, help="so many of MRPC's pairs; default: all")
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args()
    if args.part == "quality" and args.model is None:
        parser.error("quality needs --model")
    args.work.mkdir(parents=True, exist_ok=True)
    found = run_speed(args) if args.part == "speed" else run_quality(args)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()

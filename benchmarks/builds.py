"""Two builds of the project in turn, on the same models: what a change does to a step.

    python -m benchmarks.builds HEAD~1 --models llama-3.2-1b --cases decode b8
    python -m benchmarks.builds v0.1 --after HEAD --cases prefill --rounds 25 --json OUT

Whole commits are compared, Python and C++; one is compiled once (minutes) and kept. Without
--after the later build is what is installed here. Cases are those of benchmarks.cpu_peers. Below
1.00 the later build takes less time: the median of the rounds' ratios, and their middle half.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.cases import MODELS, Case, all_cases
from benchmarks.commit_build import built_commit, commit_id
from benchmarks.peers import MACHINE, OURS, PEERS, Target
from benchmarks.peers.child import ROOT, PeerError
from benchmarks.rounds import Children, Rounds, Run, run_case
from paredown.errors import ConfigError, ParedownError
from paredown.kernels.probe import default_num_threads

EARLIER = "earlier"
EXIT_BAD_INPUT = 2
NUM_ROUNDS = 15
# So few that a neighbour who comes or goes meets both builds in the same round.
NUM_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class TimeRatio:
    """Of a case: the later build's seconds over the earlier one's, round by round, and the medians
    of the seconds of a prompt or a step."""

    case: str
    earlier_s: float
    later_s: float
    median: float
    lower_quartile: float
    upper_quartile: float
    num_rounds: int

    @classmethod
    def of(cls, run: Run) -> "TimeRatio":
        earlier, later = run.seconds[EARLIER], run.seconds[OURS]
        ratios = [own / other for own, other in zip(later, earlier, strict=True)]
        quartiles = statistics.quantiles(ratios, method="inclusive")
        per_run = max(1, run.case.num_steps)
        return cls(
            case=run.case.name,
            earlier_s=statistics.median(earlier) / per_run,
            later_s=statistics.median(later) / per_run,
            median=statistics.median(ratios),
            lower_quartile=quartiles[0],
            upper_quartile=quartiles[2],
            num_rounds=len(ratios),
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("earlier", metavar="COMMIT", help="the earlier build, as git names it")
    parser.add_argument("--after", metavar="COMMIT", help="the later one (default: installed here)")
    parser.add_argument(
        "--cases", nargs="*", default=[], help="words; a case's name holds each (default: all)"
    )
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS, help="default: %(default)s")
    parser.add_argument(
        "--steps", type=int, default=NUM_STEPS, help="of a decode's turn (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "bench")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything measured")
    return parser.parse_args()


def chosen_cases(words: Sequence[str], models: Sequence[str], num_steps: int) -> list[Case]:
    """The cases of prompts and steps that have all words, each with us as the only rival. Raises
    ConfigError where there is none."""
    known = [case for case in all_cases({}) if case.task != "start" and not case.rival_kv_dtype]
    cases = [
        replace(case, with_peers=True, num_steps=min(case.num_steps, num_steps))
        for case in known
        if case.variant.model in models and all(word in case.name.split() for word in words)
    ]
    if not cases:
        raise ConfigError(
            "no case has these words",
            seen=" ".join(words),
            remedy="Known: " + "; ".join(case.name for case in known),
        )
    return cases


def compare(args: argparse.Namespace) -> None:
    """Prints each row as it comes. Raises ConfigError, BuildError, or PeerError where a build
    cannot run a case."""
    if args.rounds < 2 or args.steps < 1:
        raise ConfigError(
            "too little to measure",
            seen=f"{args.rounds} rounds, {args.steps} steps",
            remedy="Ask for two rounds, which have a middle half, and a step, or more.",
        )
    cases = chosen_cases(args.cases, args.models, args.steps)
    refs = {OURS: args.after, EARLIER: args.earlier}
    # All are known before one is compiled.
    commits = {name: commit_id(ref) for name, ref in refs.items() if ref is not None}
    targets = {name: _target(commits.get(name), args.folder) for name in refs}
    runs: list[Run] = []
    print(f"{'case':<50} {'earlier':>11} {'later':>11}  later / earlier")
    with Children(logs=args.folder / "logs", targets=targets | {"machine": MACHINE}) as children:
        for number, case in enumerate(cases):
            print(f"[{number + 1}/{len(cases)}] {case.name}", file=sys.stderr, flush=True)
            rounds = Rounds(most=args.rounds, case_s=float("inf"))
            models = args.folder / "models"
            run = run_case(
                children, models, case, list(targets), num_threads=args.threads, rounds=rounds
            )
            if run.failures:  # one of two builds alone tells nothing
                raise PeerError("; ".join(f"{name}: {why}" for name, why in run.failures.items()))
            runs.append(run)
            _print_row(TimeRatio.of(run))
            if args.json is not None:
                found = [asdict(run) | {"ratio": asdict(TimeRatio.of(run))} for run in runs]
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=2) + "\n")


def _target(commit: str | None, folder: Path) -> Target:
    if commit is None:
        return PEERS[OURS]
    print(f"{commit[:12]} is compiled where it is new", file=sys.stderr, flush=True)
    return replace(PEERS[OURS], packages=built_commit(commit, folder / "builds"))


def _print_row(row: TimeRatio) -> None:
    print(
        f"{row.case:<50} {row.earlier_s * 1e3:8.2f} ms {row.later_s * 1e3:8.2f} ms  "
        f"{row.median:.3f} ({row.lower_quartile:.3f}..{row.upper_quartile:.3f}), "
        f"{row.num_rounds} rounds",
        flush=True,
    )


def main() -> int:
    try:
        compare(parse_arguments())
    except (ParedownError, PeerError) as error:
        print(f"builds: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Two builds of the project in turn, on the same models: what a change does to a step or a start.

    python -m benchmarks.builds HEAD~1 --models llama-3.2-1b --cases decode b8
    python -m benchmarks.builds v0.1 --after HEAD --cases prefill --rounds 25 --json OUT
    python -m benchmarks.builds v0.1 --after HEAD --models llama-3.2-1b \\
        --formats int4-g32 int8 w8a8 bf16 --without b32 p4096 --bar 1.02 --loading-bar 1.05

The last one asks whether one prompt, one sequence, eight sequences and loading of one model are as
fast as they were; its exit status is 1 where a case is slower than its bar.

Whole commits are compared, Python and C++; one is compiled once (minutes; a launcher such as
CMAKE_CXX_COMPILER_LAUNCHER=ccache is used where the environment names it) and kept. Each build is
driven by the drivers of its own commit (benchmarks.peers, benchmarks.loading_phases). Without
--after the later build is what is installed here; an editable install's import hook slows its
starts, so loading is compared with --after. Cases are the steps of benchmarks.cpu_peers, a prompt,
a decode and eight sequences of every format, and loading: `packing` (a checkpoint is read and
packed) and `mapped` (a start with packed weights that were kept, imports included). Below 1.00 the
later build takes less time: the median of the rounds' ratios, and their middle half. One packing
may take twice as long as the next, so a row of loading ends in the ratio of the lower quartiles of
seconds, and the bar is for that.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.build import ROOT, Build
from benchmarks.build_cases import FORMATS, Choice, LoadingCase, chosen_cases
from benchmarks.build_loading import loading_seconds
from benchmarks.cases import MODELS, Case
from benchmarks.checkpoints.cache import paredown_folder
from benchmarks.commit_build import build_of, commit_id
from benchmarks.peers import OURS, PEERS
from benchmarks.peers.child import PeerError
from benchmarks.rounds import Children, Rounds, run_case
from paredown.errors import ConfigError, ParedownError
from paredown.kernels.probe import default_num_threads

EARLIER = "earlier"
EXIT_SLOWER = 1
EXIT_BAD_INPUT = 2
NUM_ROUNDS = 15
NUM_LOADING_ROUNDS = 21
# Few enough that another load on the machine affects both builds in the same round.
NUM_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class TimeRatio:
    """The later build's seconds of a case over the earlier one's, round by round; the medians of
    the seconds of a prompt, a step or a start; and `quiet_ratio`, the ratio of their lower
    quartiles, which rounds that met something slow do not move."""

    case: str
    earlier_s: float
    later_s: float
    median: float
    lower_quartile: float
    upper_quartile: float
    quiet_ratio: float
    num_rounds: int

    @classmethod
    def of(cls, case: Case | LoadingCase, seconds: Mapping[str, Sequence[float]]) -> "TimeRatio":
        earlier, later = seconds[EARLIER], seconds[OURS]
        ratios = [own / other for own, other in zip(later, earlier, strict=True)]
        quartiles = _quartiles(ratios)
        per_run = max(1, case.num_steps) if isinstance(case, Case) else 1
        return cls(
            case=case.name,
            earlier_s=statistics.median(earlier) / per_run,
            later_s=statistics.median(later) / per_run,
            median=statistics.median(ratios),
            lower_quartile=quartiles[0],
            upper_quartile=quartiles[2],
            quiet_ratio=_quartiles(later)[0] / _quartiles(earlier)[0],
            num_rounds=len(ratios),
        )


@dataclass(frozen=True, kw_only=True)
class Bars:
    """The limits of a prompt's or step's upper quartile, and of loading's quiet ratio; None sets no
    limit."""

    steps: float | None
    loading: float | None

    def hold(self, case: Case | LoadingCase, row: TimeRatio) -> bool:
        """Returns whether the case is within its bar."""
        if isinstance(case, LoadingCase):
            return self.loading is None or row.quiet_ratio <= self.loading
        return self.steps is None or row.upper_quartile <= self.steps


def _quartiles(values: Sequence[float]) -> list[float]:
    return statistics.quantiles(values, method="inclusive")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("earlier", metavar="COMMIT", help="the earlier build, as git names it")
    parser.add_argument("--after", metavar="COMMIT", help="the later one (default: installed here)")
    parser.add_argument(
        "--cases", nargs="*", default=[], help="words; a case's name holds each (default: all)"
    )
    parser.add_argument("--without", nargs="*", default=[], help="words of cases to leave out")
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--formats", nargs="*", default=FORMATS, choices=FORMATS)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS, help="default: %(default)s")
    parser.add_argument(
        "--loading-rounds", type=int, default=NUM_LOADING_ROUNDS, help="default: %(default)s"
    )
    parser.add_argument(
        "--steps", type=int, default=NUM_STEPS, help="of a decode's turn (default: %(default)s)"
    )
    parser.add_argument("--bar", type=float, help="the most that an upper quartile may be")
    parser.add_argument("--loading-bar", type=float, help="the most that quiet loading may be")
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "bench")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything measured")
    return parser.parse_args()


def compare(args: argparse.Namespace) -> list[str]:
    """Prints each row as it comes and returns the names of the cases beyond their bars. Raises
    ConfigError, BuildError, or PeerError where a build cannot run a case."""
    if min(args.rounds, args.loading_rounds) < 2 or args.steps < 1:
        raise ConfigError(
            "too little to measure",
            seen=f"{args.rounds} rounds, {args.loading_rounds} of loading, {args.steps} steps",
            remedy="Ask for two rounds, which have a middle half, and a step, or more.",
        )
    choice = Choice(
        models=args.models, formats=args.formats, words=args.cases, without=args.without
    )
    cases = chosen_cases(choice, args.steps)
    bars = Bars(steps=args.bar, loading=args.loading_bar)
    refs = {OURS: args.after, EARLIER: args.earlier}
    # All refs are resolved before any build is compiled.
    commits = {name: commit_id(ref) for name, ref in refs.items() if ref is not None}
    folder = args.folder.resolve()
    builds = {name: build_of(commits.get(name), folder / "commits") for name in refs}
    found: list[dict[str, object]] = []
    beyond: list[str] = []
    print(f"{'case':<50} {'earlier':>11} {'later':>11}  later / earlier")
    targets = {name: replace(PEERS[OURS], build=build) for name, build in builds.items()}
    with Children(logs=folder / "logs", targets=targets) as children:
        for number, case in enumerate(cases):
            print(f"[{number + 1}/{len(cases)}] {case.name}", file=sys.stderr, flush=True)
            seconds = (
                _loading(builds, case, folder, args)
                if isinstance(case, LoadingCase)
                else _steps(children, case, folder, args)
            )
            row = TimeRatio.of(case, seconds)
            _print_row(row, is_loading=isinstance(case, LoadingCase))
            if not bars.hold(case, row):
                beyond.append(case.name)
            if args.json is not None:
                found.append({"ratio": asdict(row), "seconds": seconds})
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=2) + "\n")
    return beyond


def _steps(
    children: Children, case: Case, folder: Path, args: argparse.Namespace
) -> dict[str, list[float]]:
    rounds = Rounds(most=args.rounds, case_s=float("inf"))
    names, models = [OURS, EARLIER], folder / "models"
    run = run_case(children, models, case, names, num_threads=args.threads, rounds=rounds)
    if run.failures:  # one of two builds alone tells nothing
        raise PeerError("; ".join(f"{name}: {why}" for name, why in run.failures.items()))
    return run.seconds


def _loading(
    builds: Mapping[str, Build], case: LoadingCase, folder: Path, args: argparse.Namespace
) -> dict[str, list[float]]:
    return loading_seconds(
        builds,
        case,
        paredown_folder(folder / "models", case.variant),
        folder / "packed",
        num_threads=args.threads,
        num_rounds=args.loading_rounds,
    )


def _print_row(row: TimeRatio, *, is_loading: bool) -> None:
    quiet = f", {row.quiet_ratio:.3f} of lower quartiles" if is_loading else ""
    print(
        f"{row.case:<50} {row.earlier_s * 1e3:8.2f} ms {row.later_s * 1e3:8.2f} ms  "
        f"{row.median:.3f} ({row.lower_quartile:.3f}..{row.upper_quartile:.3f}), "
        f"{row.num_rounds} rounds{quiet}",
        flush=True,
    )


def main() -> int:
    try:
        beyond = compare(parse_arguments())
    except (ParedownError, PeerError) as error:
        print(f"builds: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    for name in beyond:
        print(f"slower than its bar: {name}")
    return EXIT_SLOWER if beyond else 0


if __name__ == "__main__":
    sys.exit(main())

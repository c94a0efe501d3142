"""`python -m tools.fuzz`: fuzzes the readers in parallel and prints the findings."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.fuzz.processes import NATIVE, ROOT, Report, fuzz, replay, replay_command
from tools.fuzz.targets import TARGETS

FAILURES = ROOT / "runs" / "fuzz"
_HEAD = ("reader", "inputs", "inputs/s", "worst s", "worst MB", "failures")


def main() -> int:
    options = _options()
    if options.replay is not None:
        if len(options.target) != 1 or options.target[0] in NATIVE:
            print("--replay goes with one --target of Python", file=sys.stderr)
            return 2
        ended = replay(options.target[0], options.replay.resolve(), FAILURES)
        print(ended.stdout + ended.stderr, end="")
        return ended.returncode
    readers = options.target or [
        *NATIVE,
        *(name for name, target in TARGETS.items() if target.is_default),
    ]
    num_jobs = min(options.jobs, len(readers))
    seconds = options.minutes * 60 * num_jobs / len(readers)
    with ThreadPoolExecutor(num_jobs) as pool:
        reports = list(
            pool.map(lambda reader: fuzz(reader, seconds, options.seed, FAILURES), readers)
        )
    print(_json(reports) if options.json else _table(reports))
    return 1 if any(report.failures for report in reports) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="of all readers together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="side by side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", default=[], choices=[*NATIVE, *TARGETS])
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run a failing input again")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def _json(reports: Sequence[Report]) -> str:
    rows = [
        {
            **vars(report),
            "inputs_per_s": round(report.inputs_per_s, 1),
            "replay": [replay_command(report.reader, path) for path in report.failures],
        }
        for report in reports
    ]
    return json.dumps(rows, indent=2)


def _table(reports: Sequence[Report]) -> str:
    rows = [_HEAD] + [
        (
            report.reader,
            str(report.inputs),
            f"{report.inputs_per_s:.0f}",
            f"{report.worst_s:.2f}",
            f"{report.worst_mb:.0f}",
            str(len(report.failures)),
        )
        for report in reports
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    for report in reports:
        for path, what in report.failures.items():
            lines += [f"{report.reader}: {what}", f"  {replay_command(report.reader, path)}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tools.conformance FOLDER`: runs the suites of peers against our server."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.conformance.outcome import Outcome, read_outcomes
from tools.conformance.report import SuiteReport, as_json, markdown, plain, reports
from tools.conformance.run_suite import ROOT, run_suite
from tools.conformance.sources import changed, missing
from tools.conformance.stale_rows import stale_rows
from tools.conformance.suites import SUITES
from tools.conformance.work import Work

# Programs of their own, each with the folder that it is given.
PROGRAMS = {
    "json-schema": ("tools.conformance.json_schema_suite", "JSON-Schema-Test-Suite"),
    "templates": ("tools.conformance.template_formats", "llama.cpp/models/templates"),
}


def main() -> int:
    options = _options()
    folder: Path = options.folder.resolve()
    for name in missing(folder):
        print(f"{folder / name} is not there: docs/results/conformance.md says how it is made")
        return 2
    for name in changed(folder):
        print(f"{name} holds other files than the commit that figures are of", file=sys.stderr)
    chosen = options.suite or [*SUITES, *PROGRAMS]
    rows = _run_suites([name for name in chosen if name in SUITES], folder, options)
    programs = {name: _run_program(name, folder) for name in chosen if name in PROGRAMS}
    if options.json:
        printed = {"suites": as_json(rows), **{name: out for name, (_, out) in programs.items()}}
        print(json.dumps(printed, indent=2))
    else:
        print(plain(rows) if rows else "", *(out for _, out in programs.values()), sep="\n")
    if options.markdown is not None:
        options.markdown.write_text(markdown(rows))
    outcomes = [outcome for row in rows for outcome in row.outcomes]
    stale = [] if options.select else stale_rows([SUITES[row.suite] for row in rows], outcomes)
    for name in stale:
        print(f"no such test: {name}", file=sys.stderr)
    has_enough = all(row.is_enough for row in rows) and not any(
        code for code, _ in programs.values()
    )
    return 0 if has_enough and not stale else 1


def _run_suites(
    names: Sequence[str], folder: Path, options: argparse.Namespace
) -> list[SuiteReport]:
    outcomes: list[Outcome] = []
    with TemporaryDirectory(prefix="conformance-") as temporary:
        for name in names:
            work = Work(
                folder=Path(temporary),
                outcomes=Path(temporary) / f"{name}.jsonl",
                suite=name,
            )
            try:
                run_suite(SUITES[name], folder, work, options.select)
            finally:
                _keep_logs(work)
            outcomes += read_outcomes(work.outcomes)
    return reports([SUITES[name] for name in names], outcomes)


def _run_program(name: str, folder: Path) -> tuple[int, str]:
    """Returns a program's exit code and what it printed."""
    module, part = PROGRAMS[name]
    ended = subprocess.run(
        [sys.executable, "-m", module, str(folder / part)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def _keep_logs(work: Work) -> None:
    """Keeps what servers and pytest wrote, beside other files that runs leave."""
    kept = ROOT / "runs" / "conformance"
    kept.mkdir(parents=True, exist_ok=True)
    for log in work.folder.glob("*.log"):
        (kept / log.name).write_bytes(log.read_bytes())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the suites lie")
    parser.add_argument(
        "--suite", action="append", default=[], choices=[*SUITES, *PROGRAMS], help="only these"
    )
    parser.add_argument("--select", default="", help="tests whose names hold this", metavar="TEXT")
    parser.add_argument("--json", action="store_true", help="print JSON, with every test")
    parser.add_argument("--markdown", type=Path, help="write the tables there", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

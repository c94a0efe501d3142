"""`python -m tools.conformance FOLDER`: runs the suites of peers against our server."""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from paredown.models.resolve import resolve_model
from tools.conformance.outcome import Outcome, read_outcomes
from tools.conformance.report import as_json, markdown, plain, reports
from tools.conformance.run_suite import ROOT, run_suite
from tools.conformance.sources import changed, missing
from tools.conformance.stale_rows import stale_rows
from tools.conformance.suites import SUITES
from tools.conformance.work import Work


def main() -> int:
    options = _options()
    suites = [SUITES[name] for name in options.suite or SUITES]
    folder: Path = options.folder.resolve()
    for name in missing(folder):
        print(f"{folder / name} is not there: docs/results/conformance.md says how it is made")
        return 2
    for name in changed(folder):
        print(f"{name} holds other files than the commit that figures are of", file=sys.stderr)
    outcomes: list[Outcome] = []
    with TemporaryDirectory(prefix="conformance-") as temporary:
        for suite in suites:
            work = Work(
                folder=Path(temporary),
                model=resolve_model(options.model).resolve(),
                outcomes=Path(temporary) / f"{suite.name}.jsonl",
                suite=suite.name,
            )
            try:
                run_suite(suite, folder, work, options.select)
            finally:
                _keep_logs(work)
            outcomes += read_outcomes(work.outcomes)
    rows = reports(suites, outcomes)
    print(json.dumps(as_json(rows), indent=2) if options.json else plain(rows))
    if options.markdown is not None:
        options.markdown.write_text(markdown(rows))
    stale = [] if options.select else stale_rows(suites, outcomes)
    for name in stale:
        print(f"no such test: {name}", file=sys.stderr)
    return 0 if not stale and all(row.is_enough for row in rows) else 1


def _keep_logs(work: Work) -> None:
    """Keeps what servers and pytest wrote, beside other files that runs leave."""
    kept = ROOT / "runs" / "conformance"
    kept.mkdir(parents=True, exist_ok=True)
    for log in work.folder.glob("*.log"):
        (kept / log.name).write_bytes(log.read_bytes())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the suites lie")
    parser.add_argument("--suite", action="append", default=[], choices=list(SUITES))
    parser.add_argument("--select", default="", help="tests whose names hold this", metavar="TEXT")
    parser.add_argument("--model", help="a folder in place of the built-in model")
    parser.add_argument("--json", action="store_true", help="print JSON, with every test")
    parser.add_argument("--markdown", type=Path, help="write the tables there", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

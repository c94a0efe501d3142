"""`python -m tools.serve_check` (`make serve-check`): tries a whole server as clients use it, and
its page in a browser. It ends with 1 where something is wrong, or a tool is not installed."""

import argparse
import sys
from collections.abc import Callable, Mapping

from tools.serve_check.browser import chromium_path
from tools.serve_check.finding import Finding, MissingToolError
from tools.serve_check.hang_up import check_hang_ups
from tools.serve_check.mixed_load import NUM_REQUESTS, check_mixed_load
from tools.serve_check.page_check import check_page
from tools.serve_check.schema_check import NUM_EXAMPLES, check_schema
from tools.serve_check.streams import NUM_STREAMS, check_streams

Check = Callable[[argparse.Namespace], Finding]
CHECKS: Mapping[str, Check] = {
    "page": lambda options: check_page(options.model),
    "hang-up": lambda options: check_hang_ups(),
    "streams": lambda options: check_streams(options.streams),
    "schema": lambda options: check_schema(options.examples, options.seed),
    "mixed": lambda options: check_mixed_load(options.requests, options.seed),
}


def main() -> int:
    options = _options()
    names = options.only or list(CHECKS)
    try:
        if "page" in names:
            # Known before the other checks take their minutes.
            chromium_path()
        findings = [_run(name, options) for name in names]
    except MissingToolError as error:
        print(f"serve-check did not run: {error}", file=sys.stderr)
        return 1
    return 1 if any(one.faults for one in findings) else 0


def _run(name: str, options: argparse.Namespace) -> Finding:
    found = CHECKS[name](options)
    print("\n".join(found.lines()), flush=True)
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.serve_check", description=__doc__)
    parser.add_argument("--only", action="append", default=[], choices=CHECKS, help="this check")
    parser.add_argument("--requests", type=int, default=NUM_REQUESTS, help="of the mixed load")
    parser.add_argument("--streams", type=int, default=NUM_STREAMS, help="open at once")
    parser.add_argument("--examples", type=int, default=NUM_EXAMPLES, help="of an operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", help="the page's (default: the built-in one)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Cold starts, each in a fresh process: `paredown --help`, and the first token of `generate`.

    python -m benchmarks.startup [--json]

The first token is timed at the first byte on standard output. Medians of several starts; the files
are in the page cache after the first, as they are on a machine that is in use.
"""

import argparse
import json
import statistics

from benchmarks.first_token import PROGRAM, seconds_to_first_byte

NUM_STARTS = 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cases = {
        "help_s": ["--help"],
        "first_token_s": ["generate", "Once upon a time", "--max-tokens", "16"],
    }
    found = {}
    for name, arguments in cases.items():
        times = [seconds_to_first_byte([PROGRAM, *arguments]) for _ in range(NUM_STARTS)]
        found[name] = {"median": statistics.median(times), "min": min(times), "max": max(times)}
    if args.json:
        print(json.dumps(found, indent=2))
        return
    for name, row in found.items():
        print(f"{name:>14}: median {row['median']:.3f}, {row['min']:.3f} to {row['max']:.3f}")


if __name__ == "__main__":
    main()

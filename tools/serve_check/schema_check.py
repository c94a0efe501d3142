"""The server against its own /openapi.json: no 5xx, and no answer that the document does not tell.

Schemathesis makes requests that follow the document and requests that break it, in all its phases.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec

from tools.serve_check.finding import Finding, MissingToolError
from tools.serve_check.served import serve

NUM_EXAMPLES = 200
TIMEOUT_S = 1800
# A body may follow the document and still be refused: token ids beyond the vocabulary, texts beyond
# the context, fields that exclude each other.
LEFT_OUT = "positive_data_acceptance"
_CASES = re.compile(r"(\d+) generated")
_FAULT = re.compile(r"^(?:- |_{3,} )(.+?)(?: _{3,})?$", re.MULTILINE)


def check_schema(num_examples: int = NUM_EXAMPLES, seed: int = 1) -> Finding:
    """Tries a server of the built-in model, and one of it as an encoder. Raises
    MissingToolError."""
    if find_spec("schemathesis") is None:
        raise MissingToolError("Schemathesis is not installed: PyPI's package is schemathesis")
    num_cases, faults = 0, list[str]()
    for words in (("--exact-metrics",), ("--task", "embed")):
        with serve(*words) as served:
            found, told = run_schemathesis(served.url, num_examples=num_examples, seed=seed)
            faults += [f"{' '.join(words)}: {one}" for one in told]
            num_cases += found
    return Finding(check="schema", figures={"requests": num_cases}, faults=tuple(faults))


def run_schemathesis(url: str, *, num_examples: int, seed: int) -> tuple[int, list[str]]:
    """Returns how many requests were made, and what was found wrong. The same seed makes the same
    requests."""
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "run", f"{url}/openapi.json"]
    command += ["--mode", "all", "--exclude-checks", LEFT_OUT, "--continue-on-failure"]
    command += ["--max-examples", str(num_examples), "--seed", str(seed)]
    command += ["--generation-deterministic", "--generation-database", "none"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder
        )
    cases = _CASES.search(done.stdout)
    faults = list(_faults(done.stdout)) if done.returncode else []
    if done.returncode and not faults:
        faults = [f"schemathesis ended with {done.returncode}: {done.stdout}{done.stderr}"]
    return int(cases[1]) if cases else 0, faults


def _faults(text: str) -> Iterator[str]:
    yield from _FAULT.findall(text)

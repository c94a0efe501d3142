"""The server against its own /openapi.json: no 5xx, and no answer that the document does not tell.

Schemathesis makes requests that follow the document and requests that break it, in all its phases.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.serve_check.finding import Finding, MissingToolError
from tools.serve_check.served import serve

NUM_EXAMPLES = 100
TIMEOUT_S = 3600
# Answers have an end that is near, so that a time-out means something.
MAX_ANSWER_TOKENS = 64
REQUEST_TIMEOUT_S = 60
# A body may follow the document and still be refused: token ids beyond the vocabulary, texts beyond
# the context, fields that exclude each other.
LEFT_OUT = "positive_data_acceptance"
PHASES = ("examples", "coverage", "fuzzing", "stateful")
# What may answer a request that breaks the document; a body may be too large, too.
_SETTINGS = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 408, 413, 415, 422, 429]
"""
# How much of what Schemathesis tells of a failure is shown.
_MAX_TOLD_CHARS = 4000


def check_schema(num_examples: int = NUM_EXAMPLES, seed: int = 1) -> Finding:
    """Tries a server of the built-in model, and one of it as an encoder. Raises
    MissingToolError."""
    num_requests, faults = 0, list[str]()
    tokens = ("--max-answer-tokens", str(MAX_ANSWER_TOKENS))
    for words in (tokens, ("--task", "embed")):
        with serve(*words) as served:
            found, told = run_schemathesis(served.url, num_examples=num_examples, seed=seed)
            faults += [f"{' '.join(words)}: {one}" for one in told]
            num_requests += found
    return Finding(check="schema", figures={"requests": num_requests}, faults=tuple(faults))


def run_schemathesis(
    url: str, *, num_examples: int, seed: int, phases: Iterable[str] = PHASES
) -> tuple[int, list[str]]:
    """Returns how many requests were made, and what was found wrong. The same seed makes the same
    requests. Raises MissingToolError."""
    if find_spec("schemathesis") is None:
        raise MissingToolError("Schemathesis is not installed: PyPI's package is schemathesis")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "run"]
        command += [f"{url}/openapi.json", "--mode", "all", "--exclude-checks", LEFT_OUT]
        command += ["--max-examples", str(num_examples), "--seed", str(seed), "--no-shrink"]
        command += ["--generation-database", "none", "--suppress-health-check", "all"]
        command += ["--continue-on-failure", "--request-timeout", str(REQUEST_TIMEOUT_S)]
        command += ["--warnings", "off", "--report", "json", "--report-json-path", str(report)]
        command += ["--phases", ",".join(phases)]
        # Settings are looked for where it starts.
        (Path(folder) / "schemathesis.toml").write_text(_SETTINGS)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder
        )
        if not report.exists():
            return 0, [f"schemathesis ended with {done.returncode}: {done.stdout}{done.stderr}"]
        found = json.loads(report.read_text())
    faults = list(_faults(found))
    if done.returncode and not faults:
        faults.append(f"schemathesis ended with {done.returncode}")
    if faults:
        faults.append(_details(done.stdout))
    return found["test_cases"]["generated"], faults


def _faults(report: Mapping[str, Any]) -> Iterator[str]:
    for one in report["failures"]:
        yield f"{one['title']} ({', '.join(one['operations'])}), {one['count']} times"
    operations = report["operations"]
    if operations["tested"] != operations["total"]:
        yield f"{operations['tested']} of {operations['total']} operations were tried"
    if not report["complete"]:
        yield f"it stopped early: {report['stop_reason']}"


def _details(told: str) -> str:
    """Returns what it says of the first failures and errors."""
    starts = [at for name in (" ERRORS ", " FAILURES ") if (at := told.find(name)) >= 0]
    return told[min(starts, default=0) :][:_MAX_TOLD_CHARS]

"""The quick start of the README runs as it is pasted."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^## Quick start\n.*?^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def readme() -> str:
    return (ROOT / "README.md").read_text()


def test_the_quick_start_runs(tmp_path: Path) -> None:
    found = BLOCK.search(readme())
    assert found is not None
    (tmp_path / ".venv").symlink_to(sys.prefix)
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("w") as answers, err.open("w") as errors:
        process = subprocess.Popen(
            ["bash", "-e", "-c", found[1]],
            cwd=tmp_path,
            stdout=answers,
            stderr=errors,
            start_new_session=True,
        )
    try:
        assert process.wait(timeout=600) == 0, err.read_text()
    finally:
        # The server is the shell's, and stays behind it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    answer = json.loads(
        next(line for line in out.read_text().splitlines() if line.startswith('{"id"'))
    )
    assert answer["usage"]["completion_tokens"] == 20
    assert (tmp_path / "report" / "report.html").is_file()
    assert "bit for bit" in err.read_text()


def test_the_snippet_runs() -> None:
    (snippet,) = SNIPPET.findall(readme())
    done = subprocess.run(
        [sys.executable, "-c", snippet], capture_output=True, text=True, timeout=120, check=True
    )
    assert len(done.stdout) > 40

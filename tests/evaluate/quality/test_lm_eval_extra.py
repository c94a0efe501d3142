"""Without the harness its module says what to install, imported or run."""

import subprocess
import sys

BLOCKED = "import runpy, sys\nsys.modules['lm_eval'] = None\n"
MODULE = "paredown.evaluate.quality.lm_eval"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, timeout=120
    )


def test_run_without_the_extra_it_names_the_extra_and_shows_no_trace() -> None:
    done = run(f"runpy.run_module({MODULE!r}, run_name='__main__')")
    assert done.returncode == 2
    assert "pip install 'paredown[eval]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_imported_without_the_extra_it_raises_one_of_our_errors() -> None:
    code = f"""
from paredown import UnsupportedError
try:
    import {MODULE}
except UnsupportedError as error:
    print(error.remedy)
"""
    assert "pip install 'paredown[eval]'" in run(code).stdout

"""The examples of docs/offline.md run, one after the other."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "offline.md"


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 3
    exec(compile("\n".join(examples), str(PAGE), "exec"), {"__name__": "examples"})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in printed if line.endswith("length")]
    perplexity = float(printed[-1])
    assert 5 < perplexity < 500

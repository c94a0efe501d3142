"""Results that `cpu_peers --render` is asked to show and cannot."""

from pathlib import Path

import pytest

from benchmarks.cpu_peers import read_document
from paredown.errors import ConfigError


@pytest.mark.parametrize(
    "content", [None, "", "not json", "[]", "{}", '{"rows": 1}', '{"rows": [{"name": "old"}]}']
)
def test_results_that_cannot_be_shown_are_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "cpu_peers.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"cpu_peers\.json"):
        read_document(path)

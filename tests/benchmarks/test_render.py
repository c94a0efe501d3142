"""What `cpu_peers` is asked for and cannot do."""

from pathlib import Path

import pytest

from benchmarks.cpu_peers import parse_output_formats, read_document
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


def test_output_formats_are_pairs_of_known_ones() -> None:
    assert parse_output_formats(["int4-g32=bf16", "int8=int8"]) == {
        "int4-g32": "bf16",
        "int8": "int8",
    }
    for pair in ("int4-g32", "int4-g32=", "int5=bf16", "=bf16", "int4-g32=fp64"):
        with pytest.raises(ConfigError, match="FORMAT=OUTPUT"):
            parse_output_formats([pair])

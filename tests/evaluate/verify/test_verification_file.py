"""verification.json: whole or refused, wherever it lies."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.stored_fingerprint import read_fingerprint
from paredown.errors import CheckpointError
from paredown.evaluate.verify.fingerprint import Fingerprint
from paredown.evaluate.verify.golden import GoldenLogits
from paredown.evaluate.verify.verification_file import (
    FORMAT,
    NAME,
    read_verification,
    verification_path,
    write_verification,
)

FINGERPRINT = Fingerprint(
    small_files={"config.json": "12", "tokenizer.json": "34"},
    weight_files={"model.safetensors": "56"},
    golden=GoldenLogits(
        sha256="78",
        sampled_TK=[[3, 1], [2, 0]],
        log_probabilities_TK=[[-0.5, -1.0], [-0.25, -2.0]],
        arithmetic={"isa": "avx2"},
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
FIGURES = st.dictionaries(
    st.text(max_size=6).filter(lambda name: name not in ("format", "fingerprint", "sha256")),
    JSON,
    max_size=4,
)


@given(FIGURES)
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, figures: dict[str, object]
) -> None:
    folder = tmp_path_factory.mktemp("written")
    write_verification(folder, figures, FINGERPRINT)
    assert read_verification(folder) == (figures, FINGERPRINT)
    assert read_fingerprint(folder) == FINGERPRINT
    lines = (folder / NAME).read_text().splitlines()
    assert len(lines) == 2 + 3 + len(figures), "a line for each field"


def test_it_lies_in_a_folder_or_beside_a_file(tmp_path: Path) -> None:
    assert verification_path(tmp_path) == tmp_path / "verification.json"
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    for path in (one, other):
        path.write_bytes(b"GGUF")
    assert verification_path(one) == tmp_path / "one.gguf.verification.json"
    write_verification(one, {"recipe": "int8"}, FINGERPRINT)
    assert read_fingerprint(one) == FINGERPRINT
    assert read_fingerprint(other) is None
    assert read_fingerprint(tmp_path) is None


@pytest.mark.parametrize("place", ["recipe", "fingerprint", "sha256"])
def test_a_field_that_was_edited_is_seen(place: str, tmp_path: Path) -> None:
    write_verification(tmp_path, {"recipe": "int8"}, FINGERPRINT)
    fields = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(fields, indent=3, sort_keys=True))
    assert read_fingerprint(tmp_path) == FINGERPRINT, "how it is laid out is no matter"
    if place == "fingerprint":
        fields[place]["golden"]["sampled_TK"][0][0] = 4
    else:
        fields[place] = "int4"
    (tmp_path / NAME).write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match="sha256 is not that of its fields"):
        read_fingerprint(tmp_path)


def test_a_field_more_or_less_is_seen(tmp_path: Path) -> None:
    write_verification(tmp_path, {"recipe": "int8"}, FINGERPRINT)
    fields = json.loads((tmp_path / NAME).read_text())
    assert fields["format"] == FORMAT
    without = {name: one for name, one in fields.items() if name != "recipe"}
    for changed in (fields | {"note": 1}, without, {"format": FORMAT}):
        (tmp_path / NAME).write_text(json.dumps(changed))
        with pytest.raises(CheckpointError, match="damaged"):
            read_verification(tmp_path)


def test_figures_that_are_no_numbers_are_not_written(tmp_path: Path) -> None:
    """JSON has none; a file of before stays as it was."""
    write_verification(tmp_path, {"perplexity": 1.0}, FINGERPRINT)
    with pytest.raises(ValueError, match="JSON compliant"):
        write_verification(tmp_path, {"perplexity": float("nan")}, FINGERPRINT)
    assert read_verification(tmp_path) == ({"perplexity": 1.0}, FINGERPRINT)
    assert [one.name for one in tmp_path.iterdir()] == [NAME]

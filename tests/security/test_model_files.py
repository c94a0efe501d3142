"""The contents of a model's folder are read where they are files of that folder, without waiting,
and no more of them than could be meant (S05)."""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import paredown
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.compress.convert.convert import convert
from paredown.compress.convert.importance_file import read_importance
from paredown.compress.recipe_file import read_recipe
from paredown.errors import CheckpointError, ConfigError, ParedownError
from paredown.evaluate.load.trace_file import read_trace
from paredown.evaluate.verify.fingerprint import _digest_small_files
from paredown.evaluate.verify.verification_file import read_verification
from paredown.models.checkpoint import Checkpoint
from paredown.models.config_alone import read_config_alone
from paredown.models.files.folder_files import COPIED_FILES
from paredown.models.files.shards import INDEX_NAME
from paredown.models.text.tokenizer import Tokenizer

SOURCE = Path(paredown.__file__).parent
RETURNS_WITHIN_S = 60


@pytest.fixture(autouse=True)
def _returns() -> Iterator[None]:
    """Fails a test that waits for ever."""

    def hangs(*_: object) -> None:
        raise AssertionError(f"it does not return within {RETURNS_WITHIN_S} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(RETURNS_WITHIN_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("model")
    make_model("llama", torch.bfloat16, 0).save_pretrained(base / "a")
    write_byte_tokenizer(base / "a")
    convert(Checkpoint.open(base / "a"), base / "a.gguf", "gguf")
    return base


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("-----BEGIN PRIVATE KEY-----")
    return Path(shutil.copytree(made / "a", tmp_path / "model"))


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_folder(path: Path) -> None:
    path.mkdir()


def link_out(path: Path) -> None:
    path.symlink_to(path.parent.parent / "secret")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def environment(path: Path) -> None:
    path.symlink_to("/proc/self/environ")


ODD = [pipe, endless, a_folder, link_out, loop, huge, environment]


def put(path: Path, odd: Callable[[Path], None]) -> None:
    path.unlink(missing_ok=True)
    odd(path)


def refused(path: Path, read: Callable[[], object], kind: type[ParedownError]) -> None:
    """With one line that names the file, and nothing of what is in it."""
    with pytest.raises(kind) as caught:
        read()
    message = str(caught.value)
    assert path.name in message
    assert "\n" not in message
    assert "PRIVATE" not in message


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["config.json", "quantize_config.json", "model.safetensors"])
def test_a_checkpoint_with_something_else_in_the_place_of_a_file(
    folder: Path, name: str, odd: Callable[[Path], None]
) -> None:
    put(folder / name, odd)
    refused(folder / name, lambda: Checkpoint.open(folder), CheckpointError)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", [INDEX_NAME, "model-1.safetensors"])
def test_an_index_and_shards(folder: Path, name: str, odd: Callable[[Path], None]) -> None:
    tensors = dict.fromkeys(Checkpoint.open(folder).tensors, "model-1.safetensors")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / INDEX_NAME).write_text(json.dumps({"weight_map": tensors}))
    Checkpoint.open(folder)
    put(folder / name, odd)
    refused(folder / name, lambda: Checkpoint.open(folder), CheckpointError)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "generation_config.json",
    ],
)
def test_a_tokenizer(folder: Path, name: str, odd: Callable[[Path], None]) -> None:
    if name in ("special_tokens_map.json", "added_tokens.json"):
        (folder / "tokenizer_config.json").write_text("{}")
    put(folder / name, odd)
    refused(folder / name, lambda: Tokenizer.open(folder), CheckpointError)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["chat_template.jinja", "additional_chat_templates/x.jinja"])
def test_a_template_is_refused_when_a_chat_is_asked_for(
    folder: Path, name: str, odd: Callable[[Path], None]
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    put(folder / name, odd)
    if odd is link_out and "/" in name:
        (folder / name).unlink()
        (folder / name).symlink_to(folder.parent / "secret")
    templates = Tokenizer.open(folder).chat_templates
    with pytest.raises(CheckpointError) as caught:
        templates.texts()
    assert "PRIVATE" not in str(caught.value)


@pytest.mark.parametrize("odd", ODD)
def test_a_proof(folder: Path, odd: Callable[[Path], None]) -> None:
    put(folder / "verification.json", odd)
    refused(folder / "verification.json", lambda: read_verification(folder), CheckpointError)
    put(folder / "tokenizer.json", odd)
    checkpoint = Checkpoint.open(folder)
    refused(folder / "tokenizer.json", lambda: _digest_small_files(checkpoint), CheckpointError)


@pytest.mark.parametrize("odd", ODD)
def test_a_config_alone(folder: Path, odd: Callable[[Path], None]) -> None:
    put(folder / "config.json", odd)
    refused(folder / "config.json", lambda: read_config_alone(folder), CheckpointError)
    refused(
        folder / "config.json", lambda: read_config_alone(folder / "config.json"), CheckpointError
    )


@pytest.mark.parametrize("odd", [one for one in ODD if one not in (a_folder, huge)])
def test_a_gguf_file(made: Path, folder: Path, odd: Callable[[Path], None]) -> None:
    path = folder / "model.gguf"
    put(path, odd)
    for read in (Checkpoint.open, Tokenizer.open):
        refused(path, lambda read=read: read(path), CheckpointError)  # type: ignore[misc]
    shutil.copyfile(made / "a.gguf", folder.parent / "elsewhere.gguf")
    put(path, lambda path: path.symlink_to("../elsewhere.gguf"))
    refused(path, lambda: Checkpoint.open(path), CheckpointError)
    shutil.copyfile(made / "a.gguf", folder / "there.gguf")
    put(path, lambda path: path.symlink_to("there.gguf"))
    assert Checkpoint.open(path).tensors


@pytest.mark.parametrize("odd", [one for one in ODD if one is not loop])
@pytest.mark.parametrize("name", COPIED_FILES)
def test_what_is_not_the_models_is_not_copied(
    folder: Path, name: str, odd: Callable[[Path], None]
) -> None:
    output = folder.parent / "out"
    put(folder / name, odd)
    for run in (
        lambda: compress(Checkpoint.open(folder), output, "int8"),
        lambda: convert(Checkpoint.open(folder), output, "fp32"),
    ):
        refused(folder / name, run, CheckpointError)
        assert not output.exists()
    assert {path.name for path in folder.parent.iterdir()} == {"model", "secret"}


def test_templates_of_a_linked_folder_are_not_copied(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "notes.jinja").write_text("private")
    (folder / "additional_chat_templates").symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="leads out"):
        compress(Checkpoint.open(folder), folder.parent / "out", "int8")
    assert not (folder.parent / "out").exists()


def test_the_remedy_for_a_link_can_be_followed(folder: Path) -> None:
    """Its command makes the model open, and so does the folder that the file lies in."""
    real = folder.parent / "real one"
    folder.rename(real)
    folder.mkdir()
    for path in real.iterdir():
        (folder / path.name).symlink_to(path)
    for _ in range(len(list(real.iterdir()))):
        try:
            Checkpoint.open(folder)
            Tokenizer.open(folder)
        except CheckpointError as error:
            (command,) = re.findall("`(.*)`", error.remedy)
            subprocess.run(command, shell=True, check=True)
    assert Checkpoint.open(folder).file_bytes == Checkpoint.open(real).file_bytes
    Tokenizer.open(folder)


def test_a_snapshot_of_the_hubs_cache_is_opened_and_copied(folder: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / ("0" * 40)
    blobs = tmp_path / "models--org--tiny" / "blobs"
    for place in (snapshot, blobs):
        place.mkdir(parents=True)
    (folder / "LICENSE").write_text("free")
    for number, path in enumerate(folder.iterdir()):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    Tokenizer.open(snapshot)
    compress(Checkpoint.open(snapshot), tmp_path / "out", "int8")
    assert (tmp_path / "out" / "LICENSE").read_text() == "free"
    assert not (tmp_path / "out" / "LICENSE").is_symlink()


@pytest.mark.parametrize("odd", [pipe, endless, a_folder, huge])
def test_recipes_traces_and_importance(folder: Path, odd: Callable[[Path], None]) -> None:
    for name, read, kind in (
        ("r.yaml", read_recipe, ConfigError),
        ("t.csv", read_trace, ConfigError),
        ("i.dat", lambda path: read_importance(path, Checkpoint.open(folder)), CheckpointError),
    ):
        put(folder / name, odd)
        refused(folder / name, lambda read=read, name=name: read(folder / name), kind)  # type: ignore[misc]


# Files that read or write by a path's own methods: files of the system, the user's own texts, and
# what lies in a folder that was just made.
ALLOWED = {
    "cli/verbs/generate.py",
    "compress/calibrate/activation_file.py",
    "compress/convert/quantized_folder.py",
    "distill/data/training_file.py",
    "distill/memory.py",
    "distill/run_log.py",
    "evaluate/texts/calibration_text.py",
    "evaluate/texts/text.py",
    "installation.py",
    "kernels/arithmetic.py",
    "kernels/control_group.py",
    "kernels/native_module.py",
    "kernels/probe.py",
    "models/files/folder_files.py",
    "models/files/shard_writer.py",
    "optimize/optimize.py",
    "optimize/sensitivity_plot.py",
    "serve/page/assets.py",
}
MODES = {"r", "rb", "w", "wb", "x", "xb", "a", "ab", "ab+"}
METHODS = {
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "fromfile",
    "copyfile",
    "copy2",
    "touch",
    "mkdtemp",
    "NamedTemporaryFile",
}


def opens(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "open"
    if not isinstance(node.func, ast.Attribute):
        return False
    modes = {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
    return (node.func.attr == "open" and bool(MODES & modes)) or node.func.attr in METHODS


def test_every_other_file_is_opened_through_a_door() -> None:
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent.name != "files" or path.parent.parent != SOURCE:
            tree = ast.parse(path.read_text("utf-8"))
            if any(opens(node) for node in ast.walk(tree)):
                found.add(path.relative_to(SOURCE).as_posix())
    assert found == ALLOWED

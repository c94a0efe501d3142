"""Packed weights run only where this user alone can have packed them (S01, S03, S06)."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.cached_start import load
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import VARIANTS, VOCAB_SIZE, make_model
from paredown.cli.main import main
from paredown.compress.compress import compress
from paredown.errors import ConfigError
from paredown.executors.cache_config import CacheConfig
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.jobs.compress import compress_and_verify
from paredown.kernels import _core, packed_file
from paredown.kernels.isa import chosen_isa
from paredown.models.checkpoint import Checkpoint
from paredown.models.fingerprints import (
    ContentRecord,
    content_digest,
    mapped_states,
    packing_key,
)
from paredown.spec.weight import SHORT_BF16_ISAS

NOBODY = 65534


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PAREDOWN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "paredown"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    VARIANTS["llama-gqa"](tmp_path / "model", torch.bfloat16, 0)
    return tmp_path / "model"


def logits(executor: NativeExecutor) -> np.ndarray:
    ids = np.random.default_rng(1).integers(0, VOCAB_SIZE, 40).tolist()
    pages = list(range(executor.num_pages))
    return executor.step([SequenceSlice(token_ids=ids, start=0, pages=pages, num_logits=len(ids))])


def named(folder: Path) -> CacheConfig:
    return CacheConfig(folder=folder, min_bytes=0)


def packed(folder: Path) -> Path:
    (path,) = folder.glob("*.packed")
    return path


def forge_beside(folder: Path, cache: Path) -> None:
    """What an earlier version would have written next to the checkpoint, one weight changed, with
    sound hashes and a record that fits the files."""
    mine = packed_file.PackedFile(packed(cache), packed(cache).stem, 1)
    mine.verify()
    blobs = [packed_file.Blob(fields=one.fields, data=one.data.copy()) for one in mine.blobs()]
    table = next(one for one in blobs if one.fields["part"] == "embedding")
    rows = table.data.reshape(VOCAB_SIZE, -1)
    rows[:] = rows[::-1].copy()
    beside = folder / ".paredown"
    beside.mkdir()
    checkpoint = Checkpoint.open(folder)
    digest = content_digest(checkpoint, 1)
    options = {"bf16": "short"} if chosen_isa() in SHORT_BF16_ISAS else {}
    key = packing_key(checkpoint, digest, _core.LAYOUT_VERSION, options)
    with (beside / f"{key}.packed").open("xb", buffering=0) as file:
        packed_file.write_packed_file(file, key, blobs, num_threads=1, go_on=lambda: True)
    record = ContentRecord(states=mapped_states(checkpoint), digest=digest)
    (beside / "content").write_text(record.encode())


def test_packed_weights_beside_a_model_are_neither_read_nor_touched(
    folder: Path, tmp_path: Path, user_cache: Path
) -> None:
    expected = logits(load(folder, named(user_cache)))
    stranger = Path(shutil.copytree(folder, tmp_path / "stranger"))
    forge_beside(stranger, user_cache)
    before = {path: path.read_bytes() for path in stranger.rglob("*") if path.is_file()}
    shutil.rmtree(user_cache)
    for source in ("checkpoint", "cache"):
        executor = load(stranger)
        assert executor.weights_from == source
        np.testing.assert_array_equal(logits(executor), expected)
    assert {path: path.read_bytes() for path in stranger.rglob("*") if path.is_file()} == before


def test_a_link_beside_a_model_loses_nothing(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in (f"{'0' * 32}.packed", f".{'0' * 16}.partial", "content"):
        (other / name).write_text("somebody's")
    (folder / ".paredown").symlink_to(other)
    load(folder)
    load(folder)
    assert len(list(other.iterdir())) == 3


def test_what_is_verified_is_what_runs(tmp_path: Path, user_cache: Path) -> None:
    """The executor tells which content its weights have; compress, convert and serve read it."""
    make_model("llama", torch.bfloat16, 0).save_pretrained(tmp_path / "model")
    write_byte_tokenizer(tmp_path / "model")
    compress_and_verify(tmp_path / "model", tmp_path / "out", "w8a8", num_threads=1)
    load(tmp_path / "out", named(user_cache))
    stranger = Path(shutil.copytree(tmp_path / "out", tmp_path / "stranger"))
    forge_beside(stranger, user_cache)
    expected = logits(load(tmp_path / "out", None))
    executor = load(stranger)
    assert executor.weights_from == "checkpoint"
    np.testing.assert_array_equal(logits(executor), expected)
    assert executor.known_content == content_digest(Checkpoint.open(stranger), 1)


def test_another_folder_of_the_same_content_has_packed_weights_of_its_own(
    folder: Path, tmp_path: Path, user_cache: Path
) -> None:
    """A digest that two folders share must not let one decide what the other runs."""
    load(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert load(copy).weights_from == "checkpoint"
    assert len(list(user_cache.glob("*.packed"))) == 2


def shared(tmp_path: Path, kind: str) -> Path:
    """A cache folder that somebody else can write to."""
    cache = tmp_path / "shared cache"
    if kind == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        cache.symlink_to("real")
        return cache
    cache.mkdir()
    cache.chmod(0o777 if kind != "of another" else 0o700)
    if kind != "mode":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(cache, NOBODY, NOBODY)
    return cache


@pytest.mark.parametrize("kind", ["mode", "of another", "of another, open", "link"])
def test_a_cache_of_others_is_refused_with_the_command_that_mends_it(
    folder: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = shared(tmp_path, kind)
    monkeypatch.setenv("PAREDOWN_CACHE", str(cache))
    with pytest.raises(ConfigError, match="PAREDOWN_CACHE") as caught:
        CacheConfig.from_environment()
    words = {"mode": f"chmod 700 '{cache}'", "link": f"rm '{cache}'"}
    assert words.get(kind, f"sudo chown -R 0 '{cache}'") in caught.value.remedy
    with pytest.raises(ConfigError, match="PAREDOWN_CACHE"):
        load(folder, named(cache))
    assert not list(cache.iterdir())


@pytest.mark.parametrize("words", [["generate", "It"], ["bench"], ["eval"]])
def test_verbs_say_so_before_they_start(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAREDOWN_CACHE", str(shared(tmp_path, "mode")))
    assert main(words) == 2
    assert "chmod 700" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["mode", "of another", "link"])
def test_a_default_cache_of_others_is_not_used_and_the_model_runs(
    folder: Path, tmp_path: Path, kind: str, user_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(folder)
    expected = logits(load(folder, None))
    found = user_cache.rename(tmp_path / "kept")
    if kind == "link":
        user_cache.symlink_to(found)
    else:
        found.rename(user_cache)
        user_cache.chmod(0o777 if kind == "mode" else 0o700)
    if kind == "of another":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(user_cache, NOBODY, NOBODY)
    before = sorted(user_cache.iterdir())
    executor = load(folder)
    assert executor.weights_from == "checkpoint"
    np.testing.assert_array_equal(logits(executor), expected)
    assert "is not used" in caplog.text
    assert sorted(user_cache.iterdir()) == before


@pytest.mark.parametrize("kind", ["of another", "mode", "link", "pipe"])
def test_a_packed_file_of_somebody_else_is_thrown_away(
    folder: Path, tmp_path: Path, kind: str, user_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(folder)
    path = packed(user_cache)
    if kind == "of another":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(path, NOBODY, NOBODY)
    elif kind == "mode":
        path.chmod(0o666)
    else:
        kept = path.rename(tmp_path / "kept")
        if kind == "link":
            path.symlink_to(kept)
        else:
            os.mkfifo(path)
    assert load(folder).weights_from == "checkpoint"
    assert caplog.text.count("packed anew") == 1
    assert load(folder).weights_from == "cache"
    assert kind != "link" or (tmp_path / "kept").exists()


Edit = Callable[[dict], object]


def rewrite(path: Path, edit: Edit | bytes) -> None:
    """Another table in the header of a packed file, its hashes made sound again."""
    data = path.read_bytes()
    size, num_chunks = (int.from_bytes(data[at : at + 8], "little") for at in (16, 24))
    table, end = data[64 : 64 + size], 64 + size + 8 * num_chunks
    hashes = np.frombuffer(data[64 + size : end], np.uint64)
    if isinstance(edit, bytes):
        table = edit
    else:
        document = json.loads(table)
        edit(document)
        table = json.dumps(document).encode()
    head = packed_file._encode(table, hashes)
    payload = packed_file._round_up(end, packed_file.CHUNK_BYTES)
    path.write_bytes(head.ljust(payload, b"\0") + data[payload:])


def fields(document: dict, part: str) -> dict:
    return next(e["fields"] for e in document["entries"] if e["fields"]["part"].startswith(part))


ODD: dict[str, Edit | bytes] = {
    "no JSON": b"{",
    "no object": b"[]",
    "no fields": b"{}",
    "deep": b"[" * 200_000,
    "no UTF-8": b"\xff\xfe",
    "a large number": b'{"key": ' + b"9" * 6000 + b"}",
    "entries of a kind": lambda d: d.update(entries=[5]),
    "entries no list": lambda d: d.update(entries=5),
    "no entries": lambda d: d.update(entries=[]),
    "an entry less": lambda d: d["entries"].pop(),
    "an entry twice": lambda d: d["entries"].append(d["entries"][0]),
    "no part": lambda d: fields(d, "linear").pop("part"),
    "another part": lambda d: fields(d, "linear").update(part="x"),
    "part of a kind": lambda d: fields(d, "linear").update(part=[1]),
    "no role": lambda d: fields(d, "norm").pop("role"),
    "another role": lambda d: fields(d, "norm").update(role="x"),
    "a role of a kind": lambda d: fields(d, "linear").update(role=7),
    "a far layer": lambda d: fields(d, "linear").update(layer=10**30),
    "a layer beyond": lambda d: fields(d, "linear").update(layer=2**31 - 1),
    "a layer before": lambda d: fields(d, "linear").update(layer=-1),
    "a field more": lambda d: fields(d, "embedding").update(x=1),
    "a kind of a kind": lambda d: fields(d, "embedding").update(kind={}),
    "another shape": lambda d: fields(d, "linear").update(shape=[1]),
    "a negative offset": lambda d: d["entries"][0].update(offset=-4096),
    "a far offset": lambda d: d["entries"][0].update(offset=2**63),
    "a crooked offset": lambda d: d["entries"][0].update(offset=1),
    "a blob too long": lambda d: d["entries"][0].update(num_bytes=2**62),
    "a blob of no bytes": lambda d: d["entries"][-1].update(num_bytes=0),
    "bytes of a kind": lambda d: d["entries"][0].update(num_bytes="1"),
    "payload of a kind": lambda d: d.update(payload_bytes=None),
    "a layout of a kind": lambda d: d.update(layout=[]),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_contents_with_sound_hashes_are_damage(
    folder: Path, odd: str, user_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Thrown away, packed anew, and one line says so."""
    expected = logits(load(folder, named(user_cache)))
    rewrite(packed(user_cache), ODD[odd])
    executor = load(folder, named(user_cache))
    assert executor.weights_from == "checkpoint"
    np.testing.assert_array_equal(logits(executor), expected)
    lines = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "packed anew" in lines[0].getMessage()
    assert "\n" not in lines[0].getMessage()
    assert load(folder, named(user_cache)).weights_from == "cache"


def test_odd_contents_of_a_compressed_model_are_damage(tmp_path: Path, user_cache: Path) -> None:
    model = make_model("llama", torch.float32, 0, hidden_size=128, intermediate_size=256)
    model.save_pretrained(tmp_path / "source")
    compress(Checkpoint.open(tmp_path / "source"), tmp_path / "out", "int4-g32")
    load(tmp_path / "out")
    rewrite(packed(user_cache), lambda d: fields(d, "linear").update(role="o", layer=1))
    assert load(tmp_path / "out").weights_from == "checkpoint"
    assert load(tmp_path / "out").weights_from == "cache"


@pytest.mark.parametrize(
    "record", [b"[" * 200_000, b"\xff", b'{"files": ' + b"9" * 6000 + b"}", b"[1]", b"null"]
)
def test_an_odd_record_is_no_record(folder: Path, record: bytes, user_cache: Path) -> None:
    load(folder)
    (path,) = user_cache.glob("*.content")
    path.write_bytes(record)
    assert load(folder).weights_from == "checkpoint"
    assert load(folder).weights_from == "cache"


def test_what_is_not_ours_in_the_cache_stays(folder: Path, tmp_path: Path) -> None:
    """The user's own folder may hold other things, and a limit of no bytes removes only ours."""
    cache = tmp_path / "mine"
    cache.mkdir(mode=0o700)
    for name in ("holiday.packed", ".x.partial", "notes.txt", f"{'0' * 31}g.packed"):
        (cache / name).write_text("mine")
    (cache / f"{'0' * 32}.packed").write_text("an old one")
    os.mkfifo(cache / f".{'0' * 16}.partial")
    load(folder, CacheConfig(folder=cache, min_bytes=0, max_folder_bytes=0))
    left = {path.name for path in cache.iterdir()}
    assert {"holiday.packed", ".x.partial", "notes.txt", f"{'0' * 31}g.packed"} < left
    assert f"{'0' * 32}.packed" not in left

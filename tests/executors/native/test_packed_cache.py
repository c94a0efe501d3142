"""Packed weights from disk give the bits of weights packed now, or are not used."""

import errno
import json
import logging
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.cached_start import load, load_together, write_and_hang
from fakes.tiny_models import VARIANTS, VOCAB_SIZE, make_model
from paredown.compress.compress import compress
from paredown.errors import CapacityError, ConfigError
from paredown.executors.cache_config import CacheConfig
from paredown.executors.native import loading, packed_cache
from paredown.executors.native.memory_plan import plan_memory
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.native.packed_cache import drop_oldest
from paredown.executors.native.partial_file import remove_leftovers
from paredown.executors.protocol import SequenceSlice
from paredown.formats.table import FORMATS
from paredown.kernels import _core
from paredown.kernels.packed_file import PackedFile
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv import KVSpec

# Tied and untied tables, learned positions, biases, norms of heads.
FAMILIES = ("llama-tied", "llama-biases", "qwen3", "gpt2", "gpt2-untied", "opt")
WIDE = {"hidden_size": 128, "intermediate_size": 256}


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test writes into the true one."""
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


def packed_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.packed"))


def check_same_bits(folder: Path) -> None:
    expected = logits(load(folder, None))
    packed, mapped = load(folder), load(folder)
    assert (packed.weights_from, mapped.weights_from) == ("checkpoint", "cache")
    np.testing.assert_array_equal(logits(packed), expected)
    np.testing.assert_array_equal(logits(mapped), expected)
    assert mapped.weight_bytes == packed.weight_bytes


@pytest.mark.parametrize("recipe", [*FORMATS, "int4-g128-head-int8", "fp32-head-fp8"])
def test_every_format_has_the_same_bits(recipe: str, tmp_path: Path) -> None:
    model = make_model("llama", torch.float32, 0, **WIDE, tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "source")
    compress(Checkpoint.open(tmp_path / "source"), tmp_path / "out", recipe)
    check_same_bits(tmp_path / "out")


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_part_of_a_model_has_the_same_bits(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    VARIANTS[name](tmp_path / "model", dtype, 0)
    check_same_bits(tmp_path / "model")


def test_a_small_model_is_not_kept(folder: Path, user_cache: Path) -> None:
    before = sorted(folder.iterdir())
    assert load(folder, CacheConfig()).weights_from == "checkpoint"
    assert sorted(folder.iterdir()) == before
    assert not user_cache.exists()


def test_nothing_lies_next_to_the_checkpoint(folder: Path, user_cache: Path) -> None:
    before = sorted(folder.rglob("*"))
    load(folder)
    assert sorted(folder.rglob("*")) == before
    assert len(packed_files(user_cache)) == 1
    assert len(list(user_cache.iterdir())) == 2
    assert user_cache.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in user_cache.iterdir())


@pytest.mark.parametrize("damage", ["flip", "truncate", "replace"])
def test_a_damaged_file_is_told_of_and_made_anew(
    folder: Path, user_cache: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = logits(load(folder))
    (path,) = packed_files(user_cache)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-5000] ^= 1
    elif damage == "truncate":
        del data[-4096:]
    else:
        data[:] = b"something else"
    path.write_bytes(data)
    repaired = load(folder)
    assert repaired.weights_from == "checkpoint"
    assert "packed anew" in caplog.text
    np.testing.assert_array_equal(logits(repaired), expected)
    assert load(folder).weights_from == "cache"


def test_a_file_that_cannot_be_verified_now_stays_and_the_weights_are_packed(
    folder: Path,
    user_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = logits(load(folder))
    files = packed_files(user_cache)

    def no_memory(file: PackedFile) -> None:
        raise MemoryError("no memory to hash it")

    with monkeypatch.context() as patch:
        patch.setattr(PackedFile, "verify", no_memory)
        packed = load(folder)
    assert packed.weights_from == "checkpoint"
    assert "no memory to hash it" in caplog.text
    np.testing.assert_array_equal(logits(packed), expected)
    assert packed_files(user_cache) == files
    assert load(folder).weights_from == "cache"


def rewrite_weight(folder: Path) -> None:
    """One bit of one weight, in place, the times of before put back."""
    path = folder / "model.safetensors"
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        last = file.read(2)
        file.seek(-2, os.SEEK_END)
        file.write(bytes([last[0] ^ 0x40, last[1]]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_mtime_ns == stat.st_mtime_ns


def test_a_changed_weight_is_seen_though_size_and_times_are_kept(folder: Path) -> None:
    before = logits(load(folder))
    rewrite_weight(folder)
    changed = load(folder)
    assert changed.weights_from == "checkpoint"
    assert not np.array_equal(logits(changed), before)
    assert load(folder).weights_from == "cache"


def test_a_changed_config_is_seen(folder: Path) -> None:
    load(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-4}))
    assert load(folder).weights_from == "checkpoint"


def test_other_activations_are_another_packing(tmp_path: Path) -> None:
    make_model("llama", torch.float32, 0, **WIDE).save_pretrained(tmp_path / "source")
    compress(Checkpoint.open(tmp_path / "source"), tmp_path / "out", "int8")
    load(tmp_path / "out")
    assert load(tmp_path / "out", activations="fp32").weights_from == "checkpoint"
    exact = logits(load(tmp_path / "out", activations="fp32"))
    np.testing.assert_array_equal(exact, logits(load(tmp_path / "out", None, activations="fp32")))


def test_another_layout_is_another_packing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(folder)
    monkeypatch.setattr(_core, "LAYOUT_VERSION", _core.LAYOUT_VERSION + 1)
    assert load(folder).weights_from == "checkpoint"
    assert load(folder).weights_from == "cache"


def test_a_copied_checkpoint_is_packed_anew(folder: Path, tmp_path: Path) -> None:
    load(folder)
    shutil.copytree(folder, tmp_path / "copy")
    assert load(tmp_path / "copy").weights_from == "checkpoint"
    assert load(tmp_path / "copy").weights_from == "cache"
    assert load(folder).weights_from == "cache"


def test_a_checkpoint_that_was_put_there_anew_is_packed_anew(folder: Path, tmp_path: Path) -> None:
    load(folder)
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    (tmp_path / "copy").rename(folder)
    assert load(folder).weights_from == "checkpoint"


def test_a_checkpoint_that_changes_while_it_is_packed_is_not_kept(
    folder: Path, user_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = packed_cache.write_packed_file

    def write_and_change(*args: object, **options: object) -> int:
        rewrite_weight(folder)
        return write(*args, **options)

    monkeypatch.setattr(packed_cache, "write_packed_file", write_and_change)
    load(folder)
    assert not packed_files(user_cache)


def test_where_nothing_can_be_written_at_all_it_is_said(
    folder: Path, user_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    user_cache.parent.write_text("in the way")
    assert load(folder).weights_from == "checkpoint"
    assert "could not be kept" in caplog.text


def test_a_user_without_a_home_has_the_folder_of_the_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("paredown.executors.native.packed_cache.user_cache_folder", lambda: None)
    load(folder)
    assert load(folder).weights_from == "cache"
    shutil.rmtree(folder / FOLDER_NAME)
    (folder / FOLDER_NAME).write_text("in the way")
    assert load(folder).weights_from == "checkpoint"
    assert "could not be kept" in caplog.text


def test_a_full_disk_leaves_nothing(
    folder: Path,
    user_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    assert load(folder).weights_from == "checkpoint"
    assert "No space left" in caplog.text
    assert not user_cache.exists()


def test_half_of_the_free_space_is_left(
    folder: Path,
    user_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    load(folder)
    assert "twice the space" in caplog.text
    assert not user_cache.exists()


def test_two_processes_may_write_at_once(folder: Path, user_cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    children = [context.Process(target=load_together, args=(folder, start)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert len(list((user_cache).iterdir())) == 2
    assert load(folder).weights_from == "cache"


def test_what_a_killed_writer_left_is_removed_by_the_next(folder: Path, user_cache: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=write_and_hang, args=(folder,))
    child.start()
    cache = user_cache
    while not list(cache.glob(".*.partial")):
        assert child.is_alive()
        time.sleep(0.01)
    # A writer at work is left alone.
    remove_leftovers(cache)
    time.sleep(0.1)
    assert list(cache.glob(".*.partial"))
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert not packed_files(cache)
    assert load(folder).weights_from == "checkpoint"
    assert not list(cache.glob(".*.partial"))
    assert load(folder).weights_from == "cache"


def test_the_oldest_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    names = [f"{age:032x}.packed" for age in range(5)]
    for age, name in enumerate([*names, "somebody's.packed"]):
        path = tmp_path / name
        path.write_bytes(bytes(100))
        os.utime(path, (1000 - age, 1000 - age))
    drop_oldest(tmp_path, keep=tmp_path / names[4], max_bytes=350)
    left = [names[0], names[1], names[4], "somebody's.packed"]
    assert [path.name for path in packed_files(tmp_path)] == left


def test_the_environment_names_the_place(
    folder: Path, user_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAREDOWN_CACHE", "off")
    assert CacheConfig.from_environment() is None
    monkeypatch.delenv("PAREDOWN_CACHE")
    assert CacheConfig.from_environment() == CacheConfig()
    monkeypatch.setenv("PAREDOWN_CACHE", str(tmp_path / "mine"))
    config = CacheConfig.from_environment()
    assert config is not None
    load(folder, CacheConfig(folder=config.folder, min_bytes=0))
    assert len(packed_files(tmp_path / "mine")) == 1
    assert not user_cache.exists()
    monkeypatch.setenv("PAREDOWN_CACHE", str(folder / "config.json"))
    with pytest.raises(ConfigError, match="PAREDOWN_CACHE"):
        CacheConfig.from_environment()


def test_a_damaged_record_is_no_record(folder: Path, user_cache: Path) -> None:
    load(folder)
    for text in ("", "{", "[]", "{}", '{"files": [{}], "digest": 1}', '{"files": 3, "digest": ""}'):
        (record,) = user_cache.glob("*.content")
        record.write_text(text)
        assert load(folder).weights_from == "checkpoint"


def test_mapped_weights_need_no_room_for_packing(
    folder: Path, user_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(folder)
    plan = plan_memory(Checkpoint.open(folder), KVSpec(num_pages=8), 2)
    monkeypatch.setattr(loading, "available_memory_bytes", lambda: plan.total_bytes - 1)
    assert load(folder).weights_from == "cache"
    (path,) = packed_files(user_cache)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CapacityError):
        load(folder)


def test_the_log_has_no_warning_when_all_is_well(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(folder)
    load(folder)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]

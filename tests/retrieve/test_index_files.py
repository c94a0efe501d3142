"""The files of an index are whole, or refused, or not there."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from drivers.small_indexes import build, coil_texts, dense, documents_of
from paredown.errors import ConfigError, OutputError, RetrievalError
from paredown.retrieve import CoilIndex, DenseIndex, IndexConfig, TokenIndex
from paredown.retrieve import posting_runs as posting_runs_module
from paredown.retrieve import stored_bytes as stored_bytes_module
from paredown.retrieve.index_header import digest_of
from paredown.retrieve.stored_bytes import BytesWriter


def test_an_index_of_another_model_is_refused(tmp_path: Path) -> None:
    with DenseIndex.build(tmp_path / "i", IndexConfig(model="abc")) as builder:
        builder.add(np.eye(3))
    assert len(DenseIndex.open(tmp_path / "i", model="abc")) == 3
    with pytest.raises(RetrievalError, match=r"another model \(saw: abc, and xyz is wanted\)"):
        DenseIndex.open(tmp_path / "i", model="xyz")
    dense(tmp_path / "none", np.eye(3))
    with pytest.raises(RetrievalError, match="no model named"):
        DenseIndex.open(tmp_path / "none", model="xyz")


def test_an_index_of_another_kind_is_refused(tmp_path: Path) -> None:
    dense(tmp_path / "i", np.eye(3))
    with pytest.raises(RetrievalError, match="another kind of index"):
        TokenIndex.open(tmp_path / "i")


def test_a_folder_that_is_no_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "none"):
        with pytest.raises(RetrievalError, match="no index that can be read"):
            DenseIndex.open(tmp_path / name)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(data)


def make_all(folder: Path, kind: type = TokenIndex) -> Path:
    """An index of 20 documents with every kind of file."""
    rng = np.random.default_rng(7)
    documents = documents_of(rng, 20, 16)
    if kind is CoilIndex:
        documents = coil_texts(rng, 20, 16, cls_dims=24)
    with kind.build(folder) as builder:
        builder.add(documents, ids=[f"id {i}" for i in range(20)], texts=["text"] * 20)
    return folder


COMMON = {
    "header.json",
    "vectors.bin",
    "scales.bin",
    "offsets.bin",
    "ids.bin",
    "ids.offsets.bin",
    "texts.bin",
    "texts.offsets.bin",
}
FILES = {
    TokenIndex: COMMON,
    CoilIndex: COMMON | {"tokens.bin", "documents.bin", "cls.bin", "cls.scales.bin"},
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in FILES.items() for name in sorted(names)]
)
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: flip(path, 40),
        lambda path: flip(path, -10),
        lambda path: path.write_bytes(path.read_bytes()[:-2]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, kind: type, name: str, damage: Callable[[Path], object]
) -> None:
    folder = make_all(tmp_path / "i", kind)
    assert {path.name for path in folder.iterdir()} == FILES[kind]
    kind.open(folder)
    damage(folder / name)
    with pytest.raises(RetrievalError, match=r"\(saw: .*\)\. [A-Z]"):
        kind.open(folder)


def test_a_changed_bit_of_a_header_is_seen(tmp_path: Path) -> None:
    path = make_all(tmp_path / "i") / "header.json"
    intact = path.read_bytes()
    for place in range(0, len(intact), 7):
        path.write_bytes(intact[:place] + bytes([intact[place] ^ 1]) + intact[place + 1 :])
        try:
            opened = TokenIndex.open(path.parent, num_threads=1)
        except RetrievalError:
            continue
        # White space alone may change.
        assert json.loads(path.read_text()) == json.loads(intact), place
        assert len(opened) == 20


@pytest.mark.parametrize(
    "change",
    [
        {"num_vectors": 10**12},
        {"num_vectors": -1},
        {"num_vectors": 2.5},
        {"num_dims": 0},
        {"num_documents": 10**9},
        {"dtype": "int4"},
        {"metric": "l2"},
        {"kind": "sparse"},
        {"model": None},
        {"files": {}},
        {"files": []},
        {"files": {"vectors.bin": {"num_bytes": -1, "digest": ""}}},
        {"files": {"vectors.bin": {"num_bytes": 1}}},
        {"files": {"../../secret": {"num_bytes": 1, "digest": ""}}},
    ],
)
@pytest.mark.parametrize("kind", [TokenIndex, CoilIndex])
def test_a_header_with_a_right_digest_may_still_lie(
    tmp_path: Path, kind: type, change: dict[str, object]
) -> None:
    folder = make_all(tmp_path / "i", kind)
    change_header(folder, change)
    with pytest.raises(RetrievalError, match=r"\(saw: .*\)\. [A-Z]"):
        kind.open(folder)


def change_header(folder: Path, change: dict[str, object]) -> None:
    path = folder / "header.json"
    document = json.loads(path.read_text()) | change
    del document["digest"]
    path.write_text(json.dumps(document | {"digest": digest_of(document)}))


def lie(folder: Path, name: str, content: np.ndarray) -> None:
    """Another content of the same length, with a right digest."""
    with BytesWriter(folder / "new") as writer:
        writer.write(content)
        stored = writer.finish()
    assert stored.num_bytes == (folder / name).stat().st_size
    (folder / "new").replace(folder / name)
    files = json.loads((folder / "header.json").read_text())["files"]
    change_header(folder, {"files": files | {name: asdict(stored)}})


def numbers(folder: Path, name: str, dtype: type) -> np.ndarray:
    return np.fromfile(folder / name, dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "change"),
    [
        ("offsets.bin", np.int64, lambda one: one[::-1].copy()),
        ("offsets.bin", np.int64, lambda one: np.append(one[:-1], one[-1] + 1)),
        ("offsets.bin", np.int64, lambda one: np.append([0, 0], one[2:])),
        ("offsets.bin", np.int64, lambda one: np.append([0, -(2**62)], one[2:])),
        ("tokens.bin", np.uint32, lambda one: one[::-1].copy()),
        ("tokens.bin", np.uint32, np.zeros_like),
        ("documents.bin", np.uint32, lambda one: np.full_like(one, 2**32 - 1)),
        ("documents.bin", np.uint32, lambda one: np.append([20], one[1:]).astype(np.uint32)),
        ("documents.bin", np.uint32, lambda one: one[::-1].copy()),
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_lists_with_a_right_digest_may_still_lie(
    tmp_path: Path,
    name: str,
    dtype: type,
    change: Callable[[np.ndarray], np.ndarray],
    *,
    verify: bool,
) -> None:
    folder = make_all(tmp_path / "i", CoilIndex)
    lie(folder, name, numbers(folder, name, dtype))
    CoilIndex.open(folder, verify=verify)
    lie(folder, name, change(numbers(folder, name, dtype)))
    with pytest.raises(RetrievalError, match=r"the index is damaged \(saw: .*\)\. [A-Z]"):
        CoilIndex.open(folder, verify=verify)


@pytest.mark.parametrize(
    "change",
    [{"num_lists": 0}, {"num_lists": 10**12}, {"num_cls_dims": -1}, {"num_cls_dims": 10**9}],
)
def test_lists_are_as_many_as_the_header_says(tmp_path: Path, change: dict[str, object]) -> None:
    folder = make_all(tmp_path / "i", CoilIndex)
    change_header(folder, change)
    with pytest.raises(RetrievalError, match="the index is damaged"):
        CoilIndex.open(folder)


def test_another_version_says_so(tmp_path: Path) -> None:
    path = make_all(tmp_path / "i") / "header.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1}))
    with pytest.raises(RetrievalError, match="version 1, this program reads 2"):
        TokenIndex.open(path.parent)


def test_sizes_are_checked_where_bytes_are_not_read(tmp_path: Path) -> None:
    folder = make_all(tmp_path / "i")
    flip(folder / "vectors.bin", 100)
    assert len(TokenIndex.open(folder, verify=False)) == 20
    with (folder / "vectors.bin").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(RetrievalError, match="bytes, not"):
        TokenIndex.open(folder, verify=False)


def nothing_in(folder: Path) -> bool:
    return not list(folder.iterdir())


def test_an_index_exists_only_once_it_is_whole(tmp_path: Path) -> None:
    with DenseIndex.build(tmp_path / "i") as builder:
        builder.add(np.eye(100))
        assert not (tmp_path / "i").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with DenseIndex.build(tmp_path / "i") as builder:
            builder.add(np.eye(100))
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert nothing_in(tmp_path)


def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a file system that takes 300 bytes of a file."""
    made = stored_bytes_module.make_raw_file

    class NearlyFull:
        def __init__(self, path: Path) -> None:
            self._file, self._left = made(path), 300

        def write(self, data: memoryview) -> int:
            if not self._left:
                raise OSError(28, "No space left on device")
            self._left -= (taken := min(self._left, len(data)))
            return self._file.write(data[:taken])

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

    monkeypatch.setattr(stored_bytes_module, "make_raw_file", NearlyFull)
    with pytest.raises(OutputError, match=r"No space left on device.*nothing was left behind"):
        build(DenseIndex, tmp_path / "i", np.eye(100))
    assert nothing_in(tmp_path)


@pytest.mark.parametrize("kind", [DenseIndex, TokenIndex, CoilIndex])
def test_nothing_is_added_after_a_batch_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    """Caught or not, such a batch ends the index: its files may have half of it."""
    rng = np.random.default_rng(0)
    documents = {
        DenseIndex: np.eye(100),
        TokenIndex: documents_of(rng, 30, 8),
        CoilIndex: coil_texts(rng, 30, 8, cls_dims=4),
    }[kind]

    def again() -> None:
        with kind.build(tmp_path / "i") as builder:
            builder.add(documents)
            with monkeypatch.context() as patched:
                patched.setattr(stored_bytes_module.BytesWriter, "write", full)
                patched.setattr(posting_runs_module.PostingRuns, "add", full)
                with pytest.raises(OutputError, match="No space"):
                    builder.add(documents)
            with pytest.raises(OutputError, match="lacks a batch"):
                builder.add(documents)

    with pytest.raises(
        OutputError, match=rf"lacks a batch.*saw: {len(documents)} documents before it"
    ):
        again()
    assert nothing_in(tmp_path)


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_strings_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    with DenseIndex.build(tmp_path / "i") as builder:
        with pytest.raises(ConfigError, match=r"ids of documents are strings \(saw: int\)"):
            builder.add(np.eye(2), ids=["a", 7])
        builder.add(np.eye(2), ids=["a", "b"])
    assert DenseIndex.open(tmp_path / "i").ids(np.arange(2)) == ["a", "b"]


def test_a_file_that_no_such_index_has_is_refused(tmp_path: Path) -> None:
    folder = make_all(tmp_path / "i")
    (folder / "cls.bin").write_bytes(b"12345")
    files = json.loads((folder / "header.json").read_text())["files"]
    digest = next(iter(files.values()))["digest"]
    change_header(folder, {"files": files | {"cls.bin": {"num_bytes": 5, "digest": digest}}})
    with pytest.raises(RetrievalError, match=r"files that no such index has: cls\.bin"):
        TokenIndex.open(folder)


KILLED = """
import os, sys
import numpy as np
from paredown.retrieve import DenseIndex

with DenseIndex.build(sys.argv[1]) as builder:
    builder.add(np.eye(200))
    print("begun", flush=True)
    sys.stdin.read()
"""


def test_a_kill_leaves_no_index(tmp_path: Path) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path / "i")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGKILL)
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".partial")
    for folder in (left, tmp_path / "i"):
        with pytest.raises(RetrievalError, match="no index that can be read"):
            DenseIndex.open(folder)
    assert len(dense(tmp_path / "i", np.eye(5))) == 5


def test_an_index_is_replaced_only_where_that_is_asked(tmp_path: Path) -> None:
    dense(tmp_path / "i", np.eye(5))
    with pytest.raises(OutputError, match="exists already"):
        dense(tmp_path / "i", np.eye(6))
    assert len(DenseIndex.open(tmp_path / "i")) == 5
    with DenseIndex.build(tmp_path / "i", overwrite=True) as builder:
        builder.add(np.eye(6))
    assert len(DenseIndex.open(tmp_path / "i")) == 6


def test_memory_stays_bounded_while_an_index_is_built(tmp_path: Path) -> None:
    """The resident memory after a tenth of the vectors is that after all of them."""

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    batch = np.ones((2000, 128), np.float32)
    with DenseIndex.build(tmp_path / "i", IndexConfig(dtype="fp32")) as builder:
        for _ in range(20):
            builder.add(batch)
        early = resident_bytes()
        for _ in range(80):
            builder.add(batch)
        assert resident_bytes() - early < 8 << 20
    assert (tmp_path / "i" / "vectors.bin").stat().st_size == 200_000 * 128 * 4

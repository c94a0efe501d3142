"""The file of packed weights: what was written is read back, and nothing else is taken for it."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paredown.kernels import _core, packed_file
from paredown.kernels.packed_file import (
    CHUNK_BYTES,
    PAGE_BYTES,
    PIECE_BYTES,
    AbandonedError,
    Blob,
    PackedFile,
    PackedFileError,
    write_packed_file,
)

KEY = "0123"
# Beyond one piece, with odd ends.
SIZES = (3 * CHUNK_BYTES + 64, 192, 1, PIECE_BYTES + 5 * PAGE_BYTES + 7)


def random_blobs() -> list[Blob]:
    rng = np.random.default_rng(0)
    return [
        Blob(fields={"number": i}, data=rng.integers(0, 256, size, dtype=np.uint8))
        for i, size in enumerate(SIZES)
    ]


def write(path: Path, blobs: list[Blob]) -> int:
    with path.open("xb", buffering=0) as file:
        return write_packed_file(file, KEY, blobs, num_threads=2, go_on=lambda: True)


def read(path: Path, key: str = KEY) -> list[Blob]:
    file = PackedFile(path, key, 2)
    file.verify()
    return list(file.blobs())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "file"
    assert write(path, random_blobs()) == path.stat().st_size
    return path


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    path = tmp_path / "copy"
    path.write_bytes(written.read_bytes())
    return path


def change(path: Path, offset: int, value: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value)


def flip(path: Path, offset: int) -> None:
    with path.open("rb") as file:
        file.seek(offset)
        byte = file.read(1)[0]
    change(path, offset, bytes([byte ^ 4]))


def test_what_was_written_is_read_back_at_whole_pages(written: Path) -> None:
    for blob, expected in zip(read(written), random_blobs(), strict=True):
        assert blob.fields == expected.fields
        np.testing.assert_array_equal(blob.data, expected.data)
        assert blob.data.ctypes.data % PAGE_BYTES == 0
        assert not blob.data.flags.writeable


def test_a_mapping_outlives_the_file(copy: Path) -> None:
    blobs = read(copy)
    copy.unlink()
    np.testing.assert_array_equal(blobs[3].data, random_blobs()[3].data)


def test_every_flipped_bit_is_noticed(copy: Path) -> None:
    whole = copy.stat().st_size
    rng = np.random.default_rng(1)
    # The bytes between header and payload are read by nobody.
    header = list(range(0, 64, 3)) + rng.integers(64, 300, 20).tolist()
    payload = rng.integers(CHUNK_BYTES, whole, 12).tolist()
    for offset in [*header, *payload, CHUNK_BYTES, whole - 1]:
        flip(copy, offset)
        with pytest.raises(PackedFileError):
            read(copy)
        flip(copy, offset)
    read(copy)


def test_a_file_of_another_length_is_refused(copy: Path) -> None:
    whole = copy.stat().st_size
    for length in (whole - 1, whole - PAGE_BYTES, CHUNK_BYTES, 300, 63, 1, 0):
        os.truncate(copy, length)
        with pytest.raises(PackedFileError):
            read(copy)
    copy.write_bytes(b"")
    os.truncate(copy, whole)
    with pytest.raises(PackedFileError, match="does not begin"):
        read(copy)


def test_a_file_with_something_behind_it_is_refused(copy: Path) -> None:
    with copy.open("ab") as file:
        file.write(bytes(PAGE_BYTES))
    with pytest.raises(PackedFileError, match="bytes, not"):
        read(copy)


@pytest.mark.parametrize(
    ("offset", "value", "complaint"),
    [
        (0, b"GGUF", "does not begin"),
        (8, packed_file.BYTE_ORDER_MARK.to_bytes(4, "big"), "byte order"),
        (12, (7).to_bytes(4, sys.byteorder), "format is number 7"),
        (16, (1 << 60).to_bytes(8, sys.byteorder), "header is damaged"),
    ],
)
def test_files_of_other_kinds_are_named(
    copy: Path, offset: int, value: bytes, complaint: str
) -> None:
    change(copy, offset, value)
    with pytest.raises(PackedFileError, match=complaint):
        read(copy)


def test_another_key_or_layout_is_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PackedFileError, match="another checkpoint"):
        read(copy, "4567")
    monkeypatch.setattr(_core, "LAYOUT_VERSION", _core.LAYOUT_VERSION + 1)
    with pytest.raises(PackedFileError, match="layout"):
        read(copy)


def test_a_writer_can_be_stopped(tmp_path: Path) -> None:
    with (tmp_path / "a").open("xb", buffering=0) as file, pytest.raises(AbandonedError):
        write_packed_file(file, KEY, random_blobs(), num_threads=1, go_on=lambda: False)


def test_what_keeps_a_file_from_being_read_is_no_damage(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> list[int]:
        raise MemoryError

    monkeypatch.setattr(_core, "hash_chunks", no_memory)
    file = PackedFile(written, KEY, 2)
    with pytest.raises(MemoryError):
        file.verify()


def test_a_file_that_may_not_grow_is_an_error(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PIECE_BYTES + 1, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write(tmp_path / "file", random_blobs())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_an_unfinished_file_is_none(tmp_path: Path) -> None:
    """A writer that is killed between two pieces leaves a file without a header."""
    code = f"""
import os, signal
from pathlib import Path
import numpy as np
from paredown.kernels.packed_file import Blob, write_packed_file
asked = []
def go_on():
    asked.append(1)
    if len(asked) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return True
blob = Blob(fields={{}}, data=np.ones({2 * PIECE_BYTES}, np.uint8))
with Path({str(tmp_path / "file")!r}).open("xb", buffering=0) as file:
    write_packed_file(file, "{KEY}", [blob], num_threads=1, go_on=go_on)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert (tmp_path / "file").stat().st_size == PIECE_BYTES
    with pytest.raises(PackedFileError, match="does not begin"):
        read(tmp_path / "file")

"""The container: both directions with the gguf package, and files that are not what they say."""

import errno
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paredown.errors import CheckpointError, OutputError, UnsupportedError
from paredown.formats.gguf import q4_0
from paredown.formats.gguf.floats import BF16, F32
from paredown.models.gguf.file import read_gguf, write_gguf_file
from paredown.models.gguf.header import NewTensor, Value

METADATA: dict[str, Value] = {
    "general.architecture": "llama",
    "a.u8": np.uint8(200),
    "a.i8": np.int8(-3),
    "a.u16": np.uint16(60000),
    "a.i16": np.int16(-300),
    "a.u32": np.uint32(4_000_000_000),
    "a.i32": np.int32(-5),
    "a.u64": np.uint64(2**63),
    "a.i64": np.int64(-(2**40)),
    "a.f32": np.float32(1e-5),
    "a.f64": np.float64(0.1),
    "a.true": True,
    "a.text": "naïve ☃",
    "a.texts": ["one", "", "zwei ß"],
    "a.numbers": np.array([1.5, -2.5], np.float32),
    "a.flags": np.array([True, False]),
    "a.none": [],
}
TENSORS = [
    NewTensor(name="norm", block=F32, shape=(3,)),
    NewTensor(name="codes", block=q4_0.FORMAT, shape=(2, 64)),
    NewTensor(name="table", block=BF16, shape=(5, 7)),
]


def make_rows() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, one.num_bytes, np.uint8) for one in TENSORS]


def write_sample(path: Path) -> Path:
    write_gguf_file(path, METADATA, TENSORS, make_rows())
    return path


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return write_sample(tmp_path / "sample.gguf")


def test_what_was_written_is_read(sample: Path) -> None:
    file = read_gguf(sample)
    assert list(file.metadata) == list(METADATA)
    for key, value in METADATA.items():
        np.testing.assert_array_equal(file.metadata[key], value)
        assert type(file.metadata[key]) is type(value)
    for tensor, rows in zip(TENSORS, make_rows(), strict=True):
        assert file.places[tensor.name].shape == tensor.shape
        assert file.places[tensor.name].start % 32 == 0
        np.testing.assert_array_equal(file.rows(tensor.name).reshape(-1), rows)
    assert file.rows("codes").shape == (2, 36)
    assert file.file_bytes == sample.stat().st_size


def test_the_package_reads_what_we_wrote(sample: Path) -> None:
    theirs = gguf.GGUFReader(sample)
    for key, value in METADATA.items():
        np.testing.assert_array_equal(theirs.fields[key].contents(), value)
    for tensor, rows, found in zip(TENSORS, make_rows(), theirs.tensors, strict=True):
        assert found.name == tensor.name
        assert found.tensor_type == tensor.block.type_id
        assert tuple(found.shape) == tensor.shape[::-1]
        np.testing.assert_array_equal(found.data.view(np.uint8).reshape(-1), rows)


@pytest.mark.parametrize("alignment", [None, 8, 64, 4096])
def test_we_read_what_the_package_wrote(tmp_path: Path, alignment: int | None) -> None:
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    writer.add_uint32("u", 7)
    writer.add_float32("f", 0.25)
    writer.add_array("texts", ["a", "bc"])
    writer.add_array("ints", [1, 2, 3])
    writer.add_bool("no", False)
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    codes = np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32)
    blocks = gguf.quantize(codes, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("values", values)
    writer.add_tensor("codes", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = read_gguf(tmp_path / "theirs.gguf")
    assert file.metadata["u"] == 7
    assert file.metadata["f"] == 0.25
    assert file.metadata["texts"] == ["a", "bc"]
    assert file.metadata["ints"].tolist() == [1, 2, 3]
    assert file.metadata["no"] is False
    assert file.places["values"].shape == (3, 4)
    np.testing.assert_array_equal(file.rows("values").view(np.float32), values)
    np.testing.assert_array_equal(file.rows("codes"), blocks)


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def head(num_tensors: int, num_entries: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_entries)


def info(name: str, sizes: tuple[int, ...] = (4,), *, type_id: int = 0, offset: int = 0) -> bytes:
    counts = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return text(name) + counts + struct.pack("<IQ", type_id, offset)


def with_data(raw: bytes, num_bytes: int = 16) -> bytes:
    return raw + bytes(-len(raw) % 32) + bytes(num_bytes)


def entry(key: str, type_id: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", type_id) + value


HUGE = struct.pack("<Q", 2**62)
BAD: dict[str, tuple[bytes, type[Exception], str]] = {
    "empty": (b"", CheckpointError, "empty"),
    "magic": (b"GGML" + bytes(40), CheckpointError, "does not begin"),
    "short": (b"GGUF\x03\0", CheckpointError, "ends within its head"),
    "version 1": (head(0, 0, 1), UnsupportedError, "version"),
    "big-endian": (head(0, 0, 3 << 24), UnsupportedError, "little-endian"),
    "tensors": (head(2**60, 0), CheckpointError, "room for fewer tensors"),
    "entries": (head(0, 2**60), CheckpointError, "room for fewer metadata"),
    "string": (head(0, 1) + HUGE + bytes(20), CheckpointError, "fewer bytes of a string"),
    "strings": (
        head(0, 1) + entry("a", 9, struct.pack("<I", 8) + HUGE),
        CheckpointError,
        "fewer strings",
    ),
    "numbers": (
        head(0, 1) + entry("a", 9, struct.pack("<I", 4) + HUGE),
        CheckpointError,
        "fewer numbers",
    ),
    "nested": (
        head(0, 1) + entry("a", 9, struct.pack("<IQ", 9, 1) + bytes(12)),
        UnsupportedError,
        "array of arrays",
    ),
    "utf-8": (head(0, 1) + struct.pack("<Q", 1) + b"\xff" + bytes(9), CheckpointError, "UTF-8"),
    "value type": (head(0, 1) + entry("a", 13, bytes(8)), CheckpointError, "unknown type"),
    "key twice": (head(0, 2) + 2 * entry("a", 0, b"\1"), CheckpointError, "key occurs twice"),
    "tensor twice": (
        with_data(head(2, 0) + info("a") + info("a", offset=32), 64),
        CheckpointError,
        "name occurs twice",
    ),
    "dimensions": (
        with_data(head(1, 0) + info("a", (1, 1, 1, 1, 1))),
        CheckpointError,
        "number of dimensions",
    ),
    "no rows": (with_data(head(1, 0) + info("a", (4, 0))), CheckpointError, "impossible shape"),
    "huge shape": (
        with_data(head(1, 0) + info("a", (2**40, 2**40))),
        CheckpointError,
        "impossible shape",
    ),
    "columns": (
        with_data(head(1, 0) + info("a", (33,), type_id=2)),
        CheckpointError,
        "do not divide the columns",
    ),
    "known type": (with_data(head(1, 0) + info("a", type_id=15)), UnsupportedError, "Q8_K"),
    "unknown type": (with_data(head(1, 0) + info("a", type_id=99)), UnsupportedError, "type 99"),
    "past the end": (with_data(head(1, 0) + info("a", (5,))), CheckpointError, "ends before"),
    "offset": (
        with_data(head(1, 0) + info("a", offset=2**63)),
        CheckpointError,
        "ends before",
    ),
    "unaligned": (with_data(head(1, 0) + info("a", offset=4), 32), CheckpointError, "not aligned"),
    "overlap": (
        with_data(head(2, 0) + info("a", (12,)) + info("b", (4,), offset=32), 64),
        CheckpointError,
        "overlaps",
    ),
    **{
        f"alignment {value}": (
            head(0, 1) + entry("general.alignment", 4, struct.pack("<I", value)),
            CheckpointError,
            "general.alignment",
        )
        for value in (0, 3, 2**31)
    },
    "alignment text": (
        head(0, 1) + entry("general.alignment", 8, text("32")),
        CheckpointError,
        "general.alignment",
    ),
}


@pytest.mark.parametrize("case", list(BAD))
def test_a_file_that_lies_is_refused(case: str, tmp_path: Path) -> None:
    raw, error, message = BAD[case]
    (tmp_path / "bad.gguf").write_bytes(raw)
    with pytest.raises(error, match=message):
        read_gguf(tmp_path / "bad.gguf")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none\.gguf cannot be read"):
        read_gguf(tmp_path / "none.gguf")


def test_every_cut_is_noticed(sample: Path) -> None:
    raw = sample.read_bytes()
    end = read_gguf(sample).places["table"].end
    for length in [*range(0, end, 7), end - 1]:
        sample.write_bytes(raw[:length])
        with pytest.raises(CheckpointError):
            read_gguf(sample)


@given(data=st.data())
@settings(
    max_examples=200, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_mutated_bytes_are_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    path = write_sample(tmp_path / "mutated.gguf")
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        width = data.draw(st.sampled_from([1, 4, 8]))
        position = data.draw(st.integers(0, len(raw) - width))
        small = st.integers(0, 2 ** (8 * width) - 1)
        value = data.draw(st.one_of(small, st.sampled_from([0, 2 ** (8 * width) - 1])))
        raw[position : position + width] = value.to_bytes(width, "little")
    path.write_bytes(raw)
    try:
        file = read_gguf(path)
    except (CheckpointError, UnsupportedError):
        return
    for name, place in file.places.items():
        assert file.rows(name).nbytes == place.end - place.start <= len(raw)


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_nothing_is_left_after_a_failure(tmp_path: Path, failure: BaseException) -> None:
    (tmp_path / "out.gguf").write_bytes(b"old")

    def rows():
        yield make_rows()[0]
        raise failure

    expected: type[BaseException] = OutputError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected):
        write_gguf_file(tmp_path / "out.gguf", METADATA, TENSORS, rows())
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert (tmp_path / "out.gguf").read_bytes() == b"old"


def test_a_full_disk_is_an_output_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("paredown.models.gguf.file.os.fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        write_sample(tmp_path / "out.gguf")
    assert not list(tmp_path.iterdir())

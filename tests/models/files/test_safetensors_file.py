"""Our reader and writer against the `safetensors` library, damaged files, and failing writes."""

import errno
import json
import os
import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file as load_numpy
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file as save_torch

from paredown.errors import CheckpointError, OutputError, ParedownError, UnsupportedError
from paredown.formats.tensor import NUMPY_DTYPES, StoredTensor, float32_to_bf16
from paredown.models.files.safetensors_file import read_safetensors, write_safetensors

TORCH_DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I8": torch.int8,
    "U8": torch.uint8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
}


def stored(dtype: str, *shape: int) -> StoredTensor:
    rng = np.random.default_rng(len(shape))
    if dtype == "BF16":
        return StoredTensor(dtype=dtype, array=float32_to_bf16(rng.normal(size=shape)))
    array = (rng.normal(size=shape) * 50).astype(NUMPY_DTYPES[dtype])
    return StoredTensor(dtype=dtype, array=array)


ALL_DTYPES = {dtype: stored(dtype, 3, 5) for dtype in NUMPY_DTYPES} | {
    "scalar": stored("F32"),
    "empty": stored("F16", 0, 4),
    "transposed": StoredTensor(dtype="F32", array=stored("F32", 4, 6).array.T),
}


def test_what_we_write_the_library_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, ALL_DTYPES, {"format": "pt"})
    theirs = load_torch(path)
    assert set(theirs) == set(ALL_DTYPES)
    for name, tensor in ALL_DTYPES.items():
        assert theirs[name].dtype == TORCH_DTYPES[tensor.dtype]
        array = theirs[name]
        if tensor.dtype in ("BF16", "F8_E4M3"):
            array = array.view(torch.uint16 if tensor.dtype == "BF16" else torch.uint8)
        np.testing.assert_array_equal(array.numpy(), tensor.array)
    header = path.read_bytes()[8:]
    assert json.JSONDecoder().raw_decode(header.decode("latin-1"))[0]["__metadata__"] == {
        "format": "pt"
    }


def test_what_the_library_writes_we_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {
        name: torch.arange(6).reshape(2, 3).to(dtype) for name, dtype in TORCH_DTYPES.items()
    }
    save_torch(tensors, path, {"format": "pt"})
    ours = read_safetensors(path)
    assert set(ours) == set(tensors)
    for name in tensors:
        assert ours[name].dtype == name
        if name == "F8_E4M3":
            codes = tensors[name].view(torch.uint8).numpy()
            np.testing.assert_array_equal(ours[name].array, codes)
        else:
            np.testing.assert_array_equal(ours[name].to_float32(), [[0, 1, 2], [3, 4, 5]])


def test_arrays_are_views_of_the_file_and_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"x": stored("F32", 4, 4)})
    array = read_safetensors(path)["x"].array
    assert not array.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1.0


def test_a_tensor_off_its_alignment_is_copied(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = {
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
    }
    values = np.array([1.5, -2.0], np.float32)
    write_raw(path, header, b"\x07" + values.tobytes())
    tensor = read_safetensors(path)["b"]
    assert tensor.array.flags.aligned
    np.testing.assert_array_equal(tensor.array, values)


def test_a_dtype_no_weight_can_have_is_refused_only_when_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_torch({"mask": torch.ones(2, 2, dtype=torch.bool), "w": torch.ones(2)}, path)
    ours = read_safetensors(path)
    assert ours["w"].shape == (2,)
    with pytest.raises(UnsupportedError, match=r"'mask'.*BOOL"):
        ours["mask"]


def write_raw(path: Path, header: object, data: bytes) -> None:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> object:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


DAMAGED_HEADERS = {
    "not JSON": (b"{nothing", "not valid JSON"),
    "not UTF-8": (b'{"\xff": 1}', "not valid JSON"),
    "deeply nested": (b"[" * 100_000, "not valid JSON"),
    "not an object": ([1, 2], "not a JSON object"),
    "same name twice": (b'{"a": 1, "a": 2}', "duplicate name 'a'"),
    "entry not an object": ({"x": 3}, "'x' is not an object"),
    "unknown dtype": ({"x": entry(dtype="F7")}, "unknown dtype (saw: F7)"),
    "dtype not a string": ({"x": entry(dtype=["F32"])}, "unknown dtype"),
    "no shape": ({"x": {"dtype": "F32", "data_offsets": [0, 8]}}, "impossible shape"),
    "negative shape": ({"x": entry(shape=[-2])}, "impossible shape (saw: [-2])"),
    "fractional shape": ({"x": entry(shape=[2.0])}, "impossible shape"),
    "too many dimensions": ({"x": entry(shape=[1] * 65)}, "impossible shape"),
    "huge dimension": ({"x": entry(shape=[0, 2**70], offsets=[0, 0])}, "impossible shape"),
    "huge empty": ({"x": entry(shape=[0, 2**62], offsets=[0, 0])}, "impossible shape"),
    "negative offset": ({"x": entry(offsets=[-8, 0])}, "impossible data_offsets"),
    "one offset": ({"x": entry(offsets=[8])}, "impossible data_offsets"),
    "backward offsets": ({"x": entry(offsets=[8, 0])}, "do not fit its shape"),
    "span and shape differ": ({"x": entry(shape=[3])}, "which takes 12 bytes"),
    "beyond the file": ({"x": entry(shape=[4], offsets=[0, 16])}, "ends before tensor 'x'"),
    "a hole": ({"x": entry(shape=[1], offsets=[4, 8])}, "'x' follows a hole"),
    "an overlap": ({"x": entry(), "y": entry(shape=[1], offsets=[4, 8])}, "'y' overlaps"),
    "bytes of nobody": ({"x": entry(shape=[1], offsets=[0, 4])}, "belong to no tensor"),
}


@pytest.mark.parametrize("case", DAMAGED_HEADERS)
def test_damaged_headers_are_named(case: str, tmp_path: Path) -> None:
    header, words = DAMAGED_HEADERS[case]
    path = tmp_path / "a.safetensors"
    write_raw(path, header, bytes(8))
    with pytest.raises(CheckpointError) as caught:
        read_safetensors(path)
    assert words in str(caught.value)
    assert "a.safetensors" in str(caught.value)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"x": stored("F32", 4)})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"a\.safetensors"):
            read_safetensors(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 1000])
def test_a_header_longer_than_the_file_is_noticed(length: int, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match=f"header of {length} bytes in a file of 10"):
        read_safetensors(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_safetensors(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "BOOL", "X"]) | json_values,
        "shape": st.lists(st.integers(-1, 9), max_size=3) | json_values,
        "data_offsets": st.lists(st.integers(-1, 40), min_size=2, max_size=2) | json_values,
    },
)
fuzz = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read_all(path: Path) -> None:
    """Reads every tensor; only our own errors may come out."""
    try:
        tensors = read_safetensors(path)
    except CheckpointError:
        return
    for name in tensors:
        try:
            tensors[name].to_float32()
        except ParedownError:
            continue


@fuzz
@given(st.dictionaries(st.text(max_size=3), entries | json_values, max_size=3), st.binary())
def test_fuzzed_headers_raise_our_error_alone(
    tmp_path: Path, header: dict[str, object], data: bytes
) -> None:
    path = tmp_path / "a.safetensors"
    write_raw(path, header, data)
    read_all(path)


@fuzz
@given(st.binary(max_size=64))
@example(b"\x02\0\0\0\0\0\0\0{}")
def test_fuzzed_files_raise_our_error_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    read_all(path)


@fuzz
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_bytes_raise_our_error_alone(
    tmp_path: Path, changes: list[tuple[int, int]]
) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"x": stored("F32", 2, 3), "y": stored("BF16", 4)}, {"a": "b"})
    content = bytearray(path.read_bytes())
    for position, value in changes:
        content[position % len(content)] = value
    path.write_bytes(content)
    read_all(path)


class FailingTensors(Mapping[str, StoredTensor]):
    """Raises when `b` is asked for the last time, which is when its data are written."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.tensors = {"a": stored("F32", 8), "b": stored("F16", 8)}
        self.asked_for_b = 0

    def __getitem__(self, name: str) -> StoredTensor:
        self.asked_for_b += name == "b"
        if self.asked_for_b == 3:
            raise self.error
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), RuntimeError("x")])
@pytest.mark.parametrize("existing", [None, b"old"])
def test_an_exception_in_the_middle_leaves_nothing(
    error: BaseException, existing: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    if existing is not None:
        path.write_bytes(existing)
    with pytest.raises(type(error)):
        write_safetensors(path, FailingTensors(error))
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == ([existing] if existing else [])


def test_a_write_the_system_refuses_is_an_output_error(tmp_path: Path) -> None:
    """A real failure of write(2): the process may not make files above 64 KiB for a moment."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OutputError, match=r"a\.safetensors could not be written"):
            write_safetensors(tmp_path / "a.safetensors", {"x": stored("F32", 1 << 15)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_full_disk_is_an_output_error(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_safetensors(tmp_path / "a.safetensors", {"x": stored("F32", 8)})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file or directory"):
        write_safetensors(tmp_path / "none" / "a.safetensors", {"x": stored("F32", 8)})


def test_an_existing_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"old")
    write_safetensors(path, {"x": stored("F32", 8)})
    assert list(load_numpy(path)) == ["x"]
    assert list(tmp_path.iterdir()) == [path]


def test_one_name_twice_among_many_is_found_at_once(tmp_path: Path) -> None:
    """Whoever counts each name over the whole header is busy for hours."""
    names = "".join(f'"{number}": 1, ' for number in range(100_000))
    raw = f'{{{names}"last": 1, "last": 2}}'.encode()
    path = tmp_path / "odd.safetensors"
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    start_s = time.monotonic()
    with pytest.raises(CheckpointError, match="duplicate name 'last'"):
        read_safetensors(path)
    assert time.monotonic() - start_s < 30

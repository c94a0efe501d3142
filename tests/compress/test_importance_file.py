"""Importance matrices of llama.cpp: both forms are read, one is written, and what is damaged or
another model's is refused."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.tiny_models import VARIANTS
from paredown.compress.convert.importance_file import read_importance, write_importance
from paredown.compress.importance import ColumnImportance, Importance
from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.checkpoint import Checkpoint

Q, DOWN = "blk.0.attn_q.weight", "blk.1.ffn_down.weight"
OUR_Q, OUR_DOWN = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"
COLUMNS = {Q: 64, DOWN: 96}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("importance") / "source"
    VARIANTS["llama-gqa"](folder, torch.float32, 0)
    return Checkpoint.open(folder)


def sums(name: str) -> np.ndarray:
    return np.random.default_rng(len(name)).random(COLUMNS[name], np.float32)


def write_theirs(path: Path, entries: dict[str, tuple[np.ndarray, list[float]]]) -> Path:
    """As llama-imatrix does: sums and counts beside each other, means that nobody asks for."""
    writer = gguf.GGUFWriter(path, arch="", use_temp_file=False)
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["calibration.txt", "more.txt"])
    writer.add_uint32("imatrix.chunk_count", 12)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, (values, counts) in entries.items():
        writer.add_tensor(f"{name}.in_sum", np.zeros((len(counts), 4), np.float32))
        writer.add_tensor(f"{name}.in_sum2", values.reshape(len(counts), -1))
        writer.add_tensor(f"{name}.counts", np.array(counts, np.float32).reshape(-1, 1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def legacy(entries: dict[str, np.ndarray], calls: int = 4, tail: bytes | None = None) -> bytes:
    """The older form, written out."""
    raw = struct.pack("<i", len(entries))
    for name, values in entries.items():
        raw += struct.pack("<i", len(name)) + name.encode()
        raw += struct.pack("<ii", calls, len(values)) + values.astype("<f4").tobytes()
    return raw + (struct.pack("<ii", 12, 5) + b"a.txt" if tail is None else tail)


def test_llama_cpps_own_form_is_read(source: Checkpoint, tmp_path: Path) -> None:
    path = write_theirs(tmp_path / "i.gguf", {Q: (sums(Q), [10.0]), DOWN: (sums(DOWN), [0.0])})
    found = read_importance(path, source)
    assert set(found.modules) == {OUR_Q, OUR_DOWN}
    np.testing.assert_array_equal(found.modules[OUR_Q].mean_squares(), sums(Q) / np.float32(10))
    assert found.modules[OUR_DOWN].mean_squares() is None
    assert (found.num_windows, found.num_tokens) == (12, 512)
    assert found.text == "calibration.txt, more.txt"
    assert found.notes == ()


@pytest.mark.parametrize("tail", [None, b""])
def test_the_older_form_is_read(source: Checkpoint, tmp_path: Path, tail: bytes | None) -> None:
    path = tmp_path / "i.dat"
    path.write_bytes(legacy({Q: sums(Q)}, tail=tail))
    found = read_importance(path, source)
    np.testing.assert_array_equal(found.modules[OUR_Q].mean_squares(), sums(Q) / np.float32(4))
    assert (found.text, found.num_windows) == (("a.txt", 12) if tail is None else ("i.dat", 0))


@given(st.data())
@settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
def test_what_is_written_is_read_again(source: Checkpoint, tmp_path: Path, data) -> None:
    modules = {}
    for name, columns in ((OUR_Q, 64), (OUR_DOWN, 96), ("lm_head", 64)):
        if data.draw(st.booleans()) or name == OUR_Q:
            values = np.random.default_rng(columns).random(columns, np.float32)
            rows = float(data.draw(st.integers(0, 2**24)))
            modules[name] = ColumnImportance(sum_squares_I=values, num_rows=rows)
    wrote = Importance(modules=modules, text="the text", num_windows=3, num_tokens=256)
    path = tmp_path / "again.gguf"
    write_importance(path, wrote, source)
    found = read_importance(path, source)
    assert found.modules.keys() == modules.keys()
    for name, one in modules.items():
        assert found.modules[name].num_rows == one.num_rows
        np.testing.assert_array_equal(found.modules[name].sum_squares_I, one.sum_squares_I)
    assert (found.text, found.num_windows, found.num_tokens) == ("the text", 3, 256)


def test_what_is_written_lies_as_llama_cpp_writes_it(source: Checkpoint, tmp_path: Path) -> None:
    one = ColumnImportance(sum_squares_I=sums(Q), num_rows=7.0)
    wrote = Importance(modules={OUR_Q: one}, text="t", num_windows=3, num_tokens=256)
    write_importance(tmp_path / "i.gguf", wrote, source)
    reader = gguf.GGUFReader(tmp_path / "i.gguf")
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.datasets"].contents() == ["t"]
    assert reader.fields["imatrix.chunk_count"].contents() == 3
    stored = {tensor.name: tensor for tensor in reader.tensors}
    assert list(stored[f"{Q}.in_sum2"].shape) == [64, 1]
    assert list(stored[f"{Q}.counts"].shape) == [1, 1]
    np.testing.assert_array_equal(stored[f"{Q}.in_sum2"].data.reshape(-1), sums(Q))


def test_entries_of_other_tensors_are_a_note(source: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "i.dat"
    path.write_bytes(legacy({Q: sums(Q), "blk.7.attn_q.weight": sums(Q)}))
    (note,) = read_importance(path, source).notes
    assert "blk.7.attn_q.weight" in note
    path.write_bytes(legacy({"blk.7.attn_q.weight": sums(Q)}))
    with pytest.raises(CheckpointError, match=r"no importance .* 1 entries: blk\.7\.attn_q"):
        read_importance(path, source)


@pytest.mark.parametrize("form", ["gguf", "dat"])
def test_another_length_names_the_tensor(form: str, source: Checkpoint, tmp_path: Path) -> None:
    """Case E11."""
    path = tmp_path / f"i.{form}"
    if form == "dat":
        path.write_bytes(legacy({Q: sums(Q)[:-1]}))
    else:
        write_theirs(path, {Q: (sums(Q)[:-1], [1.0])})
    with pytest.raises(CheckpointError, match=r"'blk\.0\.attn_q\.weight'.*63 numbers for 64"):
        read_importance(path, source)


def test_several_counts_for_one_matrix_name_the_tensor(source: Checkpoint, tmp_path: Path) -> None:
    """Case E11: the entry of experts is none for a layer without."""
    path = write_theirs(tmp_path / "i.gguf", {Q: (np.tile(sums(Q), 4), [1.0, 2.0, 0.0, 1.0])})
    with pytest.raises(CheckpointError, match=r"'blk\.0\.attn_q\.weight'.*4 counts for 1 matrices"):
        read_importance(path, source)


@pytest.mark.parametrize(
    ("value", "count"), [(np.nan, 1.0), (np.inf, 1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, np.nan)]
)
def test_what_is_no_sum_of_squares_is_refused(
    value: float, count: float, source: Checkpoint, tmp_path: Path
) -> None:
    values = sums(Q)
    values[5] = value
    path = write_theirs(tmp_path / "i.gguf", {Q: (values, [count])})
    with pytest.raises(CheckpointError, match=r"'blk\.0\.attn_q\.weight' is no sum of squares"):
        read_importance(path, source)


def test_half_an_entry_and_other_files_are_refused(source: Checkpoint, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "half.gguf", arch="")
    writer.add_type("imatrix")
    writer.add_tensor(f"{Q}.in_sum2", sums(Q))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"no blk\.0\.attn_q\.weight\.counts"):
        read_importance(tmp_path / "half.gguf", source)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", arch="llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match="no importance matrix"):
        read_importance(tmp_path / "model.gguf", source)
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_importance(path, source)


def test_the_same_name_twice_and_bytes_behind_the_end_are_refused(
    source: Checkpoint, tmp_path: Path
) -> None:
    one = legacy({Q: sums(Q)}, tail=b"")[4:]
    path = tmp_path / "i.dat"
    path.write_bytes(struct.pack("<i", 2) + one + one)
    with pytest.raises(CheckpointError, match="twice"):
        read_importance(path, source)
    path.write_bytes(legacy({Q: sums(Q)}) + b"more")
    with pytest.raises(CheckpointError, match="behind its end"):
        read_importance(path, source)


@pytest.mark.parametrize("form", ["gguf", "dat"])
def test_a_file_cut_anywhere_is_refused(form: str, source: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / f"i.{form}"
    if form == "dat":
        path.write_bytes(legacy({Q: sums(Q)}))
    else:
        write_theirs(path, {Q: (sums(Q), [1.0])})
    raw = path.read_bytes()
    # What an older file ends with may be left out.
    whole = len(legacy({Q: sums(Q)}, tail=b"")) if form == "dat" else -1
    last = len(raw) if form == "dat" else len(raw) - 32
    for end in range(0, last, 7):
        path.write_bytes(raw[:end])
        if end != whole:
            with pytest.raises((CheckpointError, UnsupportedError)):
                read_importance(path, source)


@given(st.binary(max_size=80))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_noise_is_refused(source: Checkpoint, tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "noise.dat").write_bytes(raw)
    with pytest.raises((CheckpointError, UnsupportedError)):
        read_importance(tmp_path / "noise.dat", source)

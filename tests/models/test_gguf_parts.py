"""Models in several GGUF files: any part opens all, and parts that do not belong are refused."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter

from fakes.tiny_models import VARIANTS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import CheckpointError
from paredown.models.checkpoint import Checkpoint
from paredown.models.fingerprints import content_digest
from paredown.models.gguf.file import MappedGGUF, read_gguf, write_gguf_file
from paredown.models.gguf.header import NewTensor, Value
from paredown.models.gguf.parts import read_metadata, read_parts
from paredown.models.gguf.vocabulary import GGUFVocabulary

WORDS: dict[str, Value] = {"tokenizer.ggml.model": "none"}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    VARIANTS["llama-gqa"](tmp_path / "source", torch.bfloat16, 0)
    path = tmp_path / "whole.gguf"
    source = Checkpoint.open(tmp_path / "source")
    write_gguf(source, path, vocabulary=GGUFVocabulary(metadata=WORDS), formats=None)
    return path


def write_part(
    path: Path, file: MappedGGUF, names: Sequence[str], metadata: dict[str, Value]
) -> None:
    tensors = [
        NewTensor(name=name, block=file.places[name].block, shape=file.places[name].shape)
        for name in names
    ]
    write_gguf_file(path, metadata, tensors, [file.rows(name) for name in names])


def part_path(whole: Path, number: int, count: int = 3) -> Path:
    return whole.with_name(f"part-{number:05}-of-{count:05}.gguf")


def cut(whole: Path, count: int = 3, **changes: Value) -> None:
    """As llama.cpp's gguf-split does: all metadata in the first part."""
    file = read_gguf(whole)
    names = list(file.places)
    for number in range(count):
        split: dict[str, Value] = {
            "split.no": np.uint16(number),
            "split.count": np.uint16(count),
            "split.tensors.count": np.int32(len(names)),
        }
        split |= {key.replace("_", "."): value for key, value in changes.items()}
        metadata = {**file.metadata, **split} if number == 0 else split
        write_part(part_path(whole, number + 1, count), file, names[number::count], metadata)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_part_opens_the_model(whole: Path, number: int) -> None:
    cut(whole)
    one, several = Checkpoint.open(whole), Checkpoint.open(part_path(whole, number))
    assert several.path == part_path(whole, 1)
    assert several.config == one.config
    assert several.spec == one.spec
    assert [file.path for file in several.files] == [part_path(whole, i) for i in (1, 2, 3)]
    assert several.file_bytes == sum(path.stat().st_size for path in whole.parent.glob("part-*"))
    for name, tensor in one.tensors.items():
        np.testing.assert_array_equal(several.tensors[name].array, tensor.array)
    several.release()
    assert read_metadata(part_path(whole, number))["tokenizer.ggml.model"] == "none"


def test_the_digest_is_of_all_parts(whole: Path) -> None:
    cut(whole)
    before = content_digest(Checkpoint.open(part_path(whole, 1)), 1)
    last = part_path(whole, 3)
    raw = bytearray(last.read_bytes())
    raw[-1] ^= 1
    last.write_bytes(raw)
    assert content_digest(Checkpoint.open(part_path(whole, 1)), 1) != before


def test_parts_of_the_gguf_package(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    for index in range(5):
        writer.add_tensor(f"t{index}", np.full(4, index, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_parts(tmp_path / "m-00002-of-00003.gguf")
    assert len(found.files) == 3
    assert [found.rows(f"t{i}").view(np.float32)[0, 0] for i in range(5)] == [0, 1, 2, 3, 4]


def test_a_missing_part_is_named(whole: Path) -> None:
    cut(whole)
    part_path(whole, 2).unlink()
    with pytest.raises(CheckpointError, match="part-00002-of-00003"):
        Checkpoint.open(part_path(whole, 1))


def test_a_part_in_the_place_of_another(whole: Path) -> None:
    cut(whole)
    part_path(whole, 2).write_bytes(part_path(whole, 3).read_bytes())
    with pytest.raises(CheckpointError, match=r"part-00002-of-00003\.gguf is not the part"):
        Checkpoint.open(part_path(whole, 1))


def test_a_part_under_another_name(whole: Path) -> None:
    cut(whole)
    part_path(whole, 1).rename(whole.with_name("other.gguf"))
    with pytest.raises(CheckpointError, match=r"other\.gguf is one of several parts"):
        Checkpoint.open(whole.with_name("other.gguf"))


def test_a_tensor_in_two_parts(whole: Path) -> None:
    cut(whole)
    file = read_gguf(whole)
    metadata: dict[str, Value] = {"split.no": np.uint16(2), "split.count": np.uint16(3)}
    write_part(part_path(whole, 3), file, list(file.places), metadata)
    with pytest.raises(CheckpointError, match="in another part too"):
        Checkpoint.open(part_path(whole, 1))


@pytest.mark.parametrize("key", ["split_count", "split_no", "split_tensors_count"])
@pytest.mark.parametrize("value", [np.int32(-1), np.uint64(2**63), "3", np.array([3], np.int32)])
def test_counts_that_are_none(whole: Path, key: str, value: Value) -> None:
    cut(whole, **{key: value})
    with pytest.raises(CheckpointError):
        Checkpoint.open(part_path(whole, 1))

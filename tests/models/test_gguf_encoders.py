"""Encoders in GGUF files: what is written and read again gives the same vectors as the folder."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.gguf_models import NO_WORDS
from fakes.sentence_folders import NORMALIZE, add_modules, dense, pooling
from fakes.tiny_encoders import CLASSIFIERS, ENCODERS, variant
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import CheckpointError, UnsupportedError
from paredown.executors.encoder_protocol import TokenText
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.formats.gguf.floats import F32
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.header import NewTensor, Value
from paredown.models.gguf.parts import read_parts

TEXTS = [TokenText(token_ids=[7, 9, 200, 31, 5]), TokenText(token_ids=[40])]
GEMMA = variant("gemma3_text", num_hidden_layers=6, layer_types=None, query_pre_attn_scalar=32)


def vectors(checkpoint: Checkpoint) -> np.ndarray:
    return load_encoder(checkpoint, RunOptions(executor="torch")).encode(TEXTS)


def pair(folder: Path, write: Callable[[Path], object], kind: str) -> tuple[Checkpoint, Checkpoint]:
    """The checkpoints of a folder with modules and of the file made from it."""
    write(folder / "source")
    add_modules(folder / "source", [pooling(kind), NORMALIZE])
    source = Checkpoint.open(folder / "source")
    write_gguf(source, folder / "model.gguf", vocabulary=NO_WORDS, formats=None)
    return source, Checkpoint.open(folder / "model.gguf")


@pytest.mark.parametrize("kind", ["mean", "cls", "lasttoken"])
@pytest.mark.parametrize(
    "write",
    [ENCODERS["bert"], ENCODERS["nomic_bert"], GEMMA],
    ids=["bert", "nomic-bert", "gemma-embedding"],
)
def test_a_written_encoder_is_the_same(
    write: Callable[[Path], object], kind: str, tmp_path: Path
) -> None:
    source, read = pair(tmp_path, write, kind)
    assert read.spec.head == source.spec.head
    assert not read.spec.generates
    assert np.allclose(vectors(read), vectors(source), atol=1e-6)
    assert read.encoder_settings is not None
    assert read.encoder_settings.max_tokens == source.spec.max_positions


@pytest.mark.parametrize("name", ["bert", "bert-one-label"])
def test_a_written_classifier_is_the_same(name: str, tmp_path: Path) -> None:
    CLASSIFIERS[name](tmp_path / "source")
    source = Checkpoint.open(tmp_path / "source")
    write_gguf(source, tmp_path / "model.gguf", vocabulary=NO_WORDS, formats=None)
    read = Checkpoint.open(tmp_path / "model.gguf")
    assert np.allclose(vectors(read), vectors(source), atol=1e-6)
    assert read.encoder_settings is not None
    assert source.encoder_settings is not None
    assert read.encoder_settings.activation == source.encoder_settings.activation


def test_linear_layers_of_embedding_gemma_are_read(tmp_path: Path) -> None:
    source, _ = pair(tmp_path, GEMMA, "mean")
    rng = np.random.default_rng(0)
    layers = {
        "dense_2.weight": rng.normal(size=(48, 64)).astype(np.float32),
        "dense_3.weight": rng.normal(size=(64, 48)).astype(np.float32),
    }
    with_layers(tmp_path / "model.gguf", tmp_path / "dense.gguf", layers)
    modules = [pooling("mean"), *(dense_of(values) for values in layers.values()), NORMALIZE]
    add_modules(source.path, modules)
    expected = vectors(Checkpoint.open(source.path))
    assert np.allclose(vectors(Checkpoint.open(tmp_path / "dense.gguf")), expected, atol=1e-5)


def dense_of(values: np.ndarray) -> tuple[str, dict[str, object], dict[str, object]]:
    kind, config, _ = dense(*values.shape, bias=False, activation="torch.nn.Identity")
    return kind, config, {"linear.weight": torch.from_numpy(values.copy())}


def with_layers(source: Path, target: Path, layers: dict[str, np.ndarray]) -> None:
    """Writes the file again with more tensors."""
    parts = read_parts(source)
    tensors = [
        NewTensor(name=name, shape=place.shape, block=place.block)
        for name, place in parts.places.items()
    ]
    more = [NewTensor(name=name, shape=one.shape, block=F32) for name, one in layers.items()]
    rows = [parts.rows(one.name) for one in tensors]
    rows += [one.view(np.uint8).reshape(len(one), -1) for one in layers.values()]
    write_gguf_file(target, dict(parts.metadata), [*tensors, *more], iter(rows))


def changed(source: Path, target: Path, **keys: Value) -> Path:
    parts = read_parts(source)
    tensors = [
        NewTensor(name=name, shape=place.shape, block=place.block)
        for name, place in parts.places.items()
    ]
    metadata = {**parts.metadata, **{f"bert.{key}": value for key, value in keys.items()}}
    write_gguf_file(target, metadata, tensors, (parts.rows(one.name) for one in tensors))
    return target


def test_pooling_of_a_file(tmp_path: Path) -> None:
    pair(tmp_path, ENCODERS["bert"], "cls")
    file = tmp_path / "model.gguf"
    none = Checkpoint.open(changed(file, tmp_path / "a.gguf", pooling_type=np.uint32(0)))
    assert none.spec.head is not None
    assert none.spec.head.pooling == ("mean",)
    assert any("pooling_type" in note for note in none.notes)
    with pytest.raises(CheckpointError, match="pooling_type"):
        Checkpoint.open(changed(file, tmp_path / "b.gguf", pooling_type=np.uint32(7)))


def test_a_head_that_a_file_cannot_hold_is_not_written(tmp_path: Path) -> None:
    ENCODERS["bert"](tmp_path / "source")
    modules = [pooling("max"), NORMALIZE]
    add_modules(tmp_path / "source", modules)
    source = Checkpoint.open(tmp_path / "source")
    with pytest.raises(UnsupportedError, match="max"):
        write_gguf(source, tmp_path / "model.gguf", vocabulary=NO_WORDS, formats=None)

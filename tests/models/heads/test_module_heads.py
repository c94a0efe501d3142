"""Heads of sentence-transformers' modules give what their formulas say."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import load_file

from fakes.sentence_folders import (
    NORMALIZE,
    ModuleFiles,
    add_modules,
    dense,
    old_pooling,
    pooling,
)
from fakes.tiny_encoders import ENCODERS
from paredown.errors import CheckpointError, UnsupportedError
from paredown.executors.encoder_protocol import EncoderExecutor, TokenText
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint

Vectors = npt.NDArray[np.float32]
TEXT = TokenText(token_ids=[2, 17, 80, 33, 250, 3])
TANH = "torch.nn.modules.activation.Tanh"
IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    ENCODERS["bert"](folder)
    return folder


def open_with(
    plain: Path, folder: Path, modules: list[ModuleFiles], package: str | None = None
) -> Checkpoint:
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((plain / name).read_bytes())
    add_modules(folder, modules, *([] if package is None else [package]))
    return Checkpoint.open(folder)


def encoder_of(checkpoint: Checkpoint) -> EncoderExecutor:
    return load_encoder(checkpoint, RunOptions(executor="torch"))


def unit(vectors: Vectors) -> Vectors:
    lengths: Vectors = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / lengths


def weighted_mean(tokens: Vectors) -> Vectors:
    weights = np.arange(1, len(tokens) + 1)[:, None]
    mean: Vectors = (tokens * weights).sum(0) / weights.sum()
    return mean


POOLINGS: dict[str, Callable[[Vectors], Vectors]] = {
    "cls": lambda tokens: tokens[0],
    "lasttoken": lambda tokens: tokens[-1],
    "mean": lambda tokens: tokens.mean(0),
    "max": lambda tokens: tokens.max(0),
    "mean_sqrt_len_tokens": lambda tokens: tokens.sum(0) / len(tokens) ** 0.5,
    "weightedmean": weighted_mean,
}


@pytest.mark.parametrize("kind", POOLINGS)
def test_each_pooling_is_its_formula(kind: str, plain: Path, tmp_path: Path) -> None:
    encoder = encoder_of(open_with(plain, tmp_path, [pooling(kind)]))
    tokens = encoder.encode([TEXT], "tokens")
    assert np.allclose(encoder.encode([TEXT])[0], POOLINGS[kind](tokens), atol=1e-5)


def test_older_configs_name_the_same_poolings(plain: Path, tmp_path: Path) -> None:
    both = old_pooling(mean_tokens=True, cls_token=True)
    encoder = encoder_of(open_with(plain, tmp_path, [both]))
    tokens = encoder.encode([TEXT], "tokens")
    expected = np.concatenate([tokens[0], tokens.mean(0)])
    assert np.allclose(encoder.encode([TEXT])[0], expected, atol=1e-5)


def test_linear_layers_follow_in_order_and_the_length_is_one(plain: Path, tmp_path: Path) -> None:
    first = dense(32, 64, bias=True, activation=TANH)
    second = dense(16, 32, bias=False, activation=IDENTITY)
    checkpoint = open_with(plain, tmp_path, [pooling("mean"), first, second, NORMALIZE])
    encoder = encoder_of(checkpoint)
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("2_Dense", "3_Dense")]
    y = encoder.encode([TEXT], "tokens").mean(0)
    y = np.tanh(y @ weights[0]["linear.weight"].T + weights[0]["linear.bias"])
    y = unit(y @ weights[1]["linear.weight"].T)
    assert np.allclose(encoder.encode([TEXT])[0], y, atol=1e-5)
    assert {file.path.parent.name for file in checkpoint.files} >= {"2_Dense", "3_Dense"}
    assert "linear.weight" not in checkpoint.tensors


def test_a_linear_layer_without_pooling_is_on_tokens(plain: Path, tmp_path: Path) -> None:
    """As PyLate writes ColBERT: each vector is divided by its length behind it."""
    modules = [("pylate.models.Dense.Dense", *dense(16, 64, bias=False, activation=IDENTITY)[1:])]
    checkpoint = open_with(plain, tmp_path, modules)
    encoder = encoder_of(checkpoint)
    weight = load_file(tmp_path / "1_Dense" / "model.safetensors")["linear.weight"]
    expected = unit(encoder.encode([TEXT], "tokens") @ weight.T)
    assert np.allclose(encoder.encode([TEXT]), expected, atol=1e-5)
    assert checkpoint.encoder_settings is not None
    late = checkpoint.encoder_settings.late_interaction
    assert late is not None
    assert late.expansion_tokens == 32
    assert "!" in late.skipped_words


def test_a_norm_of_texts_has_no_effect_on_tokens(plain: Path, tmp_path: Path) -> None:
    modules = [
        dense(16, 64, bias=False, activation=IDENTITY),
        ("Normalize", {"module_input_name": "sentence_embedding"}, {}),
        ("MultiVectorMask", {"skiplist_words": ["."]}, {}),
    ]
    head = open_with(plain, tmp_path, modules).spec.head
    assert head is not None
    assert not head.is_normalized
    assert head.kind == "token_vectors"


def test_splade_takes_maxima_of_the_masked_head(tmp_path: Path) -> None:
    theirs = ENCODERS["bert-masked"](tmp_path)
    add_modules(tmp_path, [("SpladePooling", {"pooling_strategy": "max"}, {})])
    checkpoint = Checkpoint.open(tmp_path)
    with torch.no_grad():
        logits = theirs(torch.tensor([list(TEXT.token_ids)])).logits[0].numpy()
    expected = np.log1p(np.maximum(logits, 0)).max(0)
    assert np.allclose(encoder_of(checkpoint).encode([TEXT])[0], expected, atol=2e-5)
    assert checkpoint.encoder_settings is not None
    assert checkpoint.encoder_settings.similarity == "dot"


REFUSED: list[tuple[list[ModuleFiles], str]] = [
    ([pooling("median")], "pooling_mode"),
    ([pooling("mean"), pooling("mean")], "Pooling"),
    ([pooling("mean"), NORMALIZE, dense(8, 64, bias=True, activation=TANH)], "behind"),
    ([("LSTM", {}, {})], "LSTM"),
    ([pooling("mean"), dense(8, 64, bias=True, activation="my.own.Activation")], "activation"),
    ([pooling("mean"), dense(8, 64, bias=True, activation=TANH, use_residual=True)], "residual"),
    ([pooling("mean"), ("Dense", dense(8, 64, bias=True, activation=TANH)[1], {})], "no model"),
    ([pooling("mean"), dense(8, 63, bias=True, activation=TANH)], "shape"),
    ([("my_code.Pooling", {}, {})], "code of its own"),
    ([("SpladePooling", {"pooling_strategy": "sum"}, {})], "pooling_strategy"),
]


@pytest.mark.parametrize(("modules", "words"), REFUSED)
def test_what_a_head_cannot_express_is_refused(
    modules: list[ModuleFiles], words: str, plain: Path, tmp_path: Path
) -> None:
    with pytest.raises((CheckpointError, UnsupportedError), match=words):
        open_with(plain, tmp_path, modules)


@pytest.mark.parametrize("path", ["../other", "/tmp", "a/b", ".."])
def test_modules_lie_inside_the_folder(path: str, plain: Path, tmp_path: Path) -> None:
    open_with(plain, tmp_path, [pooling("mean")])
    text = (tmp_path / "modules.json").read_text().replace("1_Pooling", path)
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(CheckpointError, match="inside"):
        Checkpoint.open(tmp_path)


def test_a_linked_module_folder_is_not_followed(plain: Path, tmp_path: Path) -> None:
    folder, outside = tmp_path / "model", tmp_path / "outside"
    folder.mkdir()
    open_with(plain, folder, [pooling("mean")])
    (folder / "1_Pooling").rename(outside)
    (folder / "1_Pooling").symlink_to(outside)
    with pytest.raises(CheckpointError, match="out of the model's folder"):
        Checkpoint.open(folder)

"""Encoders from checkpoints on the native core: Transformers' vectors, memory said beforehand, and
packed weights that are kept."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fakes.tiny_encoders import CLASSIFIERS, ENCODERS, MAX_POSITIONS, VOCAB_SIZE
from fakes.tiny_models import VARIANTS
from paredown.errors import CapacityError, ConfigError, UnsupportedError
from paredown.executors.cache_config import CacheConfig
from paredown.executors.encoder_protocol import TokenText
from paredown.executors.load import load_encoder
from paredown.executors.native import loading
from paredown.executors.native.encoder_kv import encoder_kv
from paredown.executors.native.memory_plan import plan_encoder_memory
from paredown.executors.native.native_encoder import NativeEncoder
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv import KVSpec

TOLERANCE = 2e-5
TWO_THREADS = ThreadPlan(prefill=2, decode=2)


def texts() -> list[TokenText]:
    generator = np.random.default_rng(0)
    # The first ids are special tokens; padding among them would change positions.
    return [
        TokenText(token_ids=generator.integers(5, VOCAB_SIZE, size=length).tolist())
        for length in (1, 2, 17, 60, MAX_POSITIONS - 2)
    ]


def load(folder: Path, **options: object) -> NativeEncoder:
    found = load_encoder(Checkpoint.open(folder), RunOptions(threads=TWO_THREADS, **options))
    assert isinstance(found, NativeEncoder)
    return found


@pytest.mark.parametrize("name", ENCODERS)
def test_token_vectors_equal_transformers(name: str, tmp_path: Path) -> None:
    theirs = ENCODERS[name](tmp_path)
    found = load(tmp_path).encode(texts(), "tokens")
    with torch.no_grad():
        expected = torch.cat(
            [
                theirs.base_model(torch.tensor([one.token_ids])).last_hidden_state[0]
                for one in texts()
            ]
        )
    assert np.abs(found - expected.numpy()).max() <= TOLERANCE * max(1, expected.abs().max())
    assert torch.cosine_similarity(torch.from_numpy(found), expected).min() >= 0.99999


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    theirs = CLASSIFIERS[name](tmp_path)
    found = load(tmp_path).encode(texts())
    with torch.no_grad():
        expected = torch.cat([theirs(torch.tensor([one.token_ids])).logits for one in texts()])
    assert np.abs(found - expected.numpy()).max() <= TOLERANCE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ENCODERS["bert"](tmp_path / "model")
    return tmp_path / "model"


def vectors(encoder: NativeEncoder) -> npt.NDArray[np.float32]:
    return encoder.encode(texts())


def test_bf16_keys_and_values_move_vectors_little(folder: Path) -> None:
    exact, rounded = load(folder), load(folder, kv_dtype="bf16")
    assert exact.arithmetic["kv"] == "fp32"
    assert rounded.arithmetic["kv"] == "bf16"
    difference = np.abs(vectors(exact) - vectors(rounded)).max()
    assert 0 < difference <= 0.02 * np.abs(vectors(exact)).max()


def test_working_memory_is_said_beforehand(folder: Path) -> None:
    checkpoint = Checkpoint.open(folder)
    encoder = load(folder)
    kv = encoder_kv(checkpoint, RunOptions())
    plan = plan_encoder_memory(checkpoint, kv, TWO_THREADS.most)
    # Biases and padding are not counted.
    assert encoder.weight_bytes <= 1.05 * plan.weight_bytes
    assert encoder.step_bytes < plan.step_bytes
    short = [TokenText(token_ids=[7])] * 700
    for batch in (texts(), texts() * 40, short, texts()[4:] * 33):
        encoder.encode(batch)
        encoder.encode(batch, "tokens")
        assert encoder.step_bytes <= plan.step_bytes
    assert encoder.step_bytes >= 0.2 * plan.step_bytes


def test_an_encoder_that_does_not_fit_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "available_memory_bytes", lambda: 100_000)
    with pytest.raises(CapacityError, match="working memory"):
        load(folder)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_pages": 4}, "no keys and values"),
        ({"kv_cache_bytes": 1 << 20}, "no keys and values"),
        ({"kv_dtype": "int8"}, "format of floats"),
        ({"activations": "int8_row"}, "floats"),
    ],
)
def test_options_of_decoders_are_refused(
    folder: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        load(folder, **options)


def test_a_model_that_only_generates_is_no_encoder(tmp_path: Path) -> None:
    VARIANTS["llama-gqa"](tmp_path, torch.float32, 0)
    with pytest.raises(UnsupportedError, match="without a head"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["bert", "bert-masked"])
def test_packed_weights_are_kept_and_mapped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    ENCODERS[name](folder)
    first = load(folder, cache=CacheConfig(min_bytes=0))
    first.wait_for_cache()
    second = load(folder, cache=CacheConfig(min_bytes=0))
    assert (first.weights_from, second.weights_from) == ("checkpoint", "cache")
    assert np.array_equal(vectors(first), vectors(second))


def test_blobs_of_another_encoder_are_refused(tmp_path: Path) -> None:
    ENCODERS["bert"](tmp_path / "two")
    ENCODERS["bert-one-type"](tmp_path / "one")
    blobs = load(tmp_path / "two")._model.packed()
    other = loading.NativeModel(
        load(tmp_path / "one")._model.context, KVSpec(num_pages=0, dtype="fp32"), TWO_THREADS
    )
    with pytest.raises(ValueError, match="token types"):
        other.borrow(blobs)
    without = [blob for blob in blobs if blob.fields["part"] != "token_types"]
    same = loading.NativeModel(
        load(tmp_path / "two")._model.context, KVSpec(num_pages=0, dtype="fp32"), TWO_THREADS
    )
    with pytest.raises(ValueError, match="token types"):
        same.borrow(without)

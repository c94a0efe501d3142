"""Encoders on PyTorch: the same vectors alone and in any batch, and refusals before any work."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_encoders import ENCODERS, MAX_POSITIONS, VOCAB_SIZE
from fakes.tiny_models import VARIANTS
from paredown.errors import UnsupportedError
from paredown.executors.encoder_protocol import EncoderExecutor, TokenText
from paredown.executors.load import load_encoder, load_executor
from paredown.executors.run_options import ExecutorName, RunOptions
from paredown.models.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> EncoderExecutor:
    folder = tmp_path_factory.mktemp("bert")
    ENCODERS["bert"](folder)
    return load_encoder(Checkpoint.open(folder), RunOptions(executor="torch"))


def texts() -> list[TokenText]:
    generator = np.random.default_rng(0)
    lengths = (1, 5, 5, 33, MAX_POSITIONS)
    return [TokenText(token_ids=generator.integers(VOCAB_SIZE, size=n).tolist()) for n in lengths]


def test_a_text_has_the_same_bits_alone_and_in_any_batch(encoder: EncoderExecutor) -> None:
    together = encoder.encode(texts())
    assert together.shape == (5, encoder.spec.hidden_size)
    assert np.array_equal(together, np.concatenate([encoder.encode([one]) for one in texts()]))
    assert np.array_equal(together[::-1], encoder.encode(texts()[::-1]))


def test_token_vectors_lie_one_after_the_other(encoder: EncoderExecutor) -> None:
    tokens = encoder.encode(texts(), "tokens")
    assert len(tokens) == sum(len(one.token_ids) for one in texts())
    # The head is the mean.
    assert np.allclose(tokens[1:6].mean(axis=0), encoder.encode(texts()[1:2])[0], atol=1e-6)


def test_types_change_vectors_and_default_to_zero(encoder: EncoderExecutor) -> None:
    ids = texts()[1].token_ids
    plain, zeros, ones = (
        encoder.encode([TokenText(token_ids=ids, type_ids=types)])
        for types in (None, [0] * 5, [1] * 5)
    )
    assert np.array_equal(plain, zeros)
    assert not np.allclose(plain, ones, atol=1e-2)


def test_no_texts_give_no_rows(encoder: EncoderExecutor) -> None:
    assert encoder.encode([]).shape == (0, encoder.spec.hidden_size)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TokenText(token_ids=[]), "0 tokens"),
        (TokenText(token_ids=[7] * (MAX_POSITIONS + 1)), "65 tokens"),
        (TokenText(token_ids=[VOCAB_SIZE]), "outside"),
        (TokenText(token_ids=[-1]), "outside"),
        (TokenText(token_ids=[1, 2], type_ids=[0]), "types"),
        (TokenText(token_ids=[1, 2], type_ids=[0, 2]), "types"),
    ],
)
def test_texts_beyond_the_model_are_refused(
    encoder: EncoderExecutor, text: TokenText, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        encoder.encode([*texts(), text])


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_an_encoder_generates_nothing(executor: ExecutorName, tmp_path: Path) -> None:
    ENCODERS["bert"](tmp_path)
    with pytest.raises(UnsupportedError, match="writes no text"):
        load_executor(Checkpoint.open(tmp_path), RunOptions(executor=executor, num_pages=2))


def test_a_model_that_only_generates_is_no_encoder(tmp_path: Path) -> None:
    VARIANTS["llama-gqa"](tmp_path, torch.float32, 0)
    with pytest.raises(UnsupportedError, match="without a head"):
        load_encoder(Checkpoint.open(tmp_path), RunOptions(executor="torch"))

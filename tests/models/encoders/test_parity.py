"""Encoders give Transformers' token vectors, and classifiers its logits, on checkpoints that it
wrote."""

from pathlib import Path

import pytest
import torch

from fakes.tiny_encoders import CLASSIFIERS, ENCODERS, VOCAB_SIZE
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

TOLERANCE = 2e-5
LENGTHS = (1, 2, 17, 60)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def token_ids(length: int) -> torch.Tensor:
    # The first ids are special tokens; padding among them would change positions.
    generator = torch.Generator().manual_seed(length)
    return torch.randint(5, VOCAB_SIZE, (2, length), generator=generator)


@pytest.mark.parametrize("name", ENCODERS)
def test_token_vectors_equal_transformers(name: str, tmp_path: Path) -> None:
    theirs = ENCODERS[name](tmp_path)
    ours = Decoder.from_checkpoint(Checkpoint.open(tmp_path))
    for length in LENGTHS:
        ids = token_ids(length)
        with torch.no_grad():
            expected = theirs.base_model(ids).last_hidden_state
            found = ours.encode(ids)
        scale = max(1.0, expected.abs().max().item())
        assert (expected - found).abs().max() <= TOLERANCE * scale
        assert torch.cosine_similarity(expected, found, dim=-1).min() >= 0.99999


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    theirs = CLASSIFIERS[name](tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    ours = Decoder.from_checkpoint(checkpoint)
    assert checkpoint.encoder_settings is not None
    assert len(checkpoint.encoder_settings.labels) == theirs.config.num_labels
    for length in LENGTHS:
        ids = token_ids(length)
        with torch.no_grad():
            expected = theirs(ids).logits
            found = ours.apply_head(ours.encode(ids))
        assert (expected - found).abs().max() <= TOLERANCE

"""Encoders in every format that decoders have: near the dequantized weights, and the same bits in
any batch."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_encoders import ENCODERS, VOCAB_SIZE, variant
from paredown.compress.compress import compress
from paredown.executors.encoder_protocol import TokenText
from paredown.executors.load import load_encoder
from paredown.executors.native.native_encoder import NativeEncoder
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

# Cosines to the dequantized weights with inputs as they are.
LEAST_COSINE = {
    "bf16": 0.9999,
    "int8": 0.999,
    "w8a8": 0.999,
    "int4-g32": 0.999,
    "w4a8-g32": 0.998,
    "fp8": 0.9999,
}


def texts() -> list[TokenText]:
    generator = np.random.default_rng(0)
    lengths = (1, 2, 17, 60, 33, 5)
    return [TokenText(token_ids=generator.integers(5, VOCAB_SIZE, n).tolist()) for n in lengths]


def load(folder: Path, num_threads: int) -> NativeEncoder:
    threads = ThreadPlan(prefill=num_threads, decode=num_threads)
    found = load_encoder(Checkpoint.open(folder), RunOptions(threads=threads))
    assert isinstance(found, NativeEncoder)
    return found


@pytest.mark.parametrize("recipe", LEAST_COSINE)
def test_vectors_are_near_those_of_the_dequantized_weights(recipe: str, tmp_path: Path) -> None:
    variant("bert")(tmp_path / "in")
    compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", recipe)
    encoder, alone = load(tmp_path / "out", 3), load(tmp_path / "out", 1)
    found = encoder.encode(texts())
    assert np.array_equal(found, np.concatenate([alone.encode([text]) for text in texts()]))
    decoder = Decoder.from_checkpoint(Checkpoint.open(tmp_path / "out"))
    with torch.no_grad():
        expected = torch.cat(
            [decoder.apply_head(decoder.encode(torch.tensor([one.token_ids]))) for one in texts()]
        )
    cosines = torch.cosine_similarity(torch.from_numpy(found), expected)
    assert cosines.min() >= LEAST_COSINE[recipe]


@pytest.mark.parametrize("name", ["bert-masked", "modernbert", "gemma3_text", "mpnet"])
def test_families_run_quantized(name: str, tmp_path: Path) -> None:
    ENCODERS[name](tmp_path / "in")
    compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "w8a8")
    exact, quantized = load(tmp_path / "in", 2), load(tmp_path / "out", 2)
    assert quantized.weight_bytes < exact.weight_bytes / 2
    dots = (quantized.encode(texts(), "tokens") * exact.encode(texts(), "tokens")).sum(axis=1)
    assert (dots > 0).all()

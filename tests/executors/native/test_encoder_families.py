"""The native core gives PyTorch's vectors for every family of encoders, through their folders."""

from pathlib import Path

import numpy as np
import pytest

from fakes.sentence_folders import add_modules
from fakes.tiny_encoders import CLASSIFIERS, ENCODERS, VOCAB_SIZE
from paredown.executors.encoder_protocol import TokenText
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint

WRITERS = {
    **{f"vectors-{name}": write for name, write in ENCODERS.items()},
    **{f"labels-{name}": write for name, write in CLASSIFIERS.items()},
}


@pytest.mark.parametrize("name", WRITERS)
def test_vectors_equal_pytorch(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path)
    if name.endswith("-masked"):
        add_modules(tmp_path, [("SpladePooling", {"pooling_strategy": "max"}, {})])
    checkpoint = Checkpoint.open(tmp_path)
    generator = np.random.default_rng(0)
    texts = [
        TokenText(token_ids=generator.integers(5, VOCAB_SIZE, size=length).tolist())
        for length in (1, 2, 33, 60)
    ]
    torch, native = (
        load_encoder(checkpoint, options)
        for options in (RunOptions(executor="torch"), RunOptions(activations="fp32"))
    )
    expected = torch.encode(texts)
    assert np.abs(native.encode(texts) - expected).max() <= 1e-5 * max(1, np.abs(expected).max())

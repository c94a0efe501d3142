"""A tiny model and a text for searches."""

from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Groups of 128 do not divide its 96 columns."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_model("llama", torch.bfloat16, 0, initializer_range=0.08).save_pretrained(folder)
    write_byte_tokenizer(folder)
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("All happy families are alike; every unhappy family is unhappy. " * 20)
    return path

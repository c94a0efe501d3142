"""Encoder-decoders are quantized in both stacks; what walks through one stack is refused."""

from pathlib import Path

import pytest
import torch

from fakes.tiny_t5 import VOCAB_SIZE, make_t5, write_t5
from paredown.compress.checked_recipe import check_recipe
from paredown.compress.compress import compress
from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.encoder_decoder import EncoderDecoder


@pytest.fixture
def source(tmp_path: Path) -> Checkpoint:
    torch.set_num_threads(1)
    write_t5(make_t5("gated-tied"), tmp_path / "in")
    return Checkpoint.open(tmp_path / "in")


@pytest.mark.parametrize("recipe", ["int8", "w8a8", "int4-g32"])
def test_both_stacks_are_quantized(recipe: str, source: Checkpoint, tmp_path: Path) -> None:
    made = compress(source, tmp_path / "out", recipe)
    written = Checkpoint.open(made.path)
    modules = written.names.layer_modules(written.spec)
    assert len(modules) == made.num_quantized == 3 * 7 + 2 * 11
    assert all(written.is_coded(one) for one in modules)
    assert {row.roles for row in made.schemes} >= {"head"}
    draw = torch.Generator().manual_seed(1)
    encoder_ids, ids = (torch.randint(2, VOCAB_SIZE, (1, size), generator=draw) for size in (40, 9))
    models = [EncoderDecoder.from_checkpoint(one) for one in (source, written)]
    with torch.no_grad():
        exact, rounded = (one(encoder_ids, ids).log_softmax(-1) for one in models)
    divergence = (exact.exp() * (exact - rounded)).sum(-1).mean()
    assert 0 < divergence < (0.3 if recipe == "int4-g32" else 0.01)


@pytest.mark.parametrize("recipe", ["gptq-int4-g32", "awq-int4-g32", "smoothquant-w8a8"])
def test_what_is_calibrated_is_refused(recipe: str, source: Checkpoint) -> None:
    with pytest.raises(UnsupportedError, match="only quantized, and without calibration"):
        check_recipe(source, recipe)

"""The one call that calibration attends with gives what the decoder's own lines give."""

import pytest
import torch

from fakes.tiny_models import make_model
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.read import load_layer


@pytest.mark.parametrize("family", ["llama", "qwen3", "opt", "mistral"])
def test_fused_attention_is_the_decoders(family, tmp_path):
    make_model(family, torch.float32, 4).save_pretrained(tmp_path / "in")
    source = Checkpoint.open(tmp_path / "in")
    layer = load_layer(source, 1)
    table, mask_TT = layer.positions(24)
    x_BTD = torch.randn(3, 24, source.spec.hidden_size, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        plain = layer(x_BTD, table, mask_TT)
        layer.is_fused = True
        fused = layer(x_BTD, table, mask_TT)
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)

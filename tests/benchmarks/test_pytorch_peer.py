"""The layers that stand for PyTorch compute what the weights say."""

import numpy as np
import pytest
import torch

from benchmarks.peers.pytorch import Int4Linear, Int8DynamicLinear, Int8Linear, layer_of
from paredown.formats.quantize import quantize
from paredown.formats.table import FORMATS


@pytest.mark.parametrize(
    ("name", "layer"),
    [("int8", Int8Linear), ("w8a8", Int8DynamicLinear), ("int4-g32", Int4Linear)],
)
def test_a_layer_multiplies_by_its_weight(name: str, layer: type[torch.nn.Module]) -> None:
    rng = np.random.default_rng(0)
    weight = quantize(rng.normal(size=(64, 128)).astype(np.float32), FORMATS[name], "bf16")
    bias = torch.from_numpy(rng.normal(size=64).astype(np.float32)).bfloat16()
    assert layer_of(weight) is layer
    x = torch.from_numpy(rng.normal(size=(1, 5, 128)).astype(np.float32)).bfloat16()
    with torch.inference_mode():
        y = layer(weight, bias)(x)
    assert y.shape == (1, 5, 64)
    assert y.dtype == torch.bfloat16
    expected = x.float() @ torch.from_numpy(weight.dequantize()).T + bias.float()
    error = (y.float() - expected).abs().max() / expected.abs().max()
    assert error < 0.02

"""Rounding passes gradients on, without those of values that were clamped."""

import torch

from paredown.distill.quantized.input_rounding import InputRounding, KVRounding
from paredown.distill.quantized.straight_through import straight_through


def test_it_rounds_and_passes_gradients() -> None:
    x = torch.tensor([0.4, 1.6, -9.0], requires_grad=True)
    y = straight_through(x, torch.round, limit=8.0)
    assert y.tolist() == [0.0, 2.0, -9.0]
    (gradient,) = torch.autograd.grad((y * torch.tensor([2.0, 3.0, 4.0])).sum(), x)
    assert gradient.tolist() == [2.0, 3.0, 0.0]


def test_the_dtype_stays() -> None:
    x = torch.tensor([0.4, 1.6], dtype=torch.bfloat16)
    assert straight_through(x, torch.round).dtype == torch.bfloat16


def test_static_inputs_beyond_the_scale_get_no_gradient() -> None:
    x = torch.tensor([[1.0, 127.0, 200.0]], requires_grad=True)
    y = InputRounding(activations="int8_static", input_scale=1.0)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.tolist() == [[1.0, 127.0, 127.0]]
    assert gradient.tolist() == [[1.0, 1.0, 0.0]]


def test_static_keys_have_a_scale_for_each_head() -> None:
    x_BKTC = torch.tensor([[[[1.0, 0.26]], [[1.0, 0.26]]]], requires_grad=True)
    y_BKTC = KVRounding(dtype="int8-static", scales=(0.5, 0.005))(x_BKTC)
    torch.testing.assert_close(y_BKTC.flatten(), torch.tensor([1.0, 0.5, 0.635, 0.26]))
    (gradient_BKTC,) = torch.autograd.grad(y_BKTC.sum(), x_BKTC)
    assert gradient_BKTC.flatten().tolist() == [1.0, 1.0, 0.0, 1.0]

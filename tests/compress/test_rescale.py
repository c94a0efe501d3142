"""Factors that move between neighbours leave every family's layer as it was."""

from pathlib import Path

import pytest
import torch

from fakes.tiny_encoders import variant
from fakes.tiny_models import VARIANTS
from paredown.compress.quantize.rescale import (
    columns_of_channels,
    linear_weight,
    replaced,
    rescale,
    to_columns,
)
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.read import load_layer
from paredown.models.decoder.smoothing import (
    SmoothingPair,
    input_pairs,
    norm_pairs,
    pairs_left_out,
    smoothing_pairs,
)
from paredown.spec.weight import ScaleDType
from references.plain_block import tiny_block


def random_scales(num_channels: int) -> torch.Tensor:
    """From a hundredth to a hundred."""
    return 10 ** (torch.rand(num_channels, dtype=torch.float64) * 4 - 2)


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_pairs_of_every_family_keep_the_function(variant: str, tmp_path: Path) -> None:
    block = tiny_block(variant, tmp_path, double=True)
    expected = block.outputs()
    changed = {name: values.clone() for name, values in block.layer.state_dict().items()}
    pairs = smoothing_pairs(block.layer.spec)
    for pair in pairs:
        num_channels = block.layer.get_submodule(pair.producer).weight.shape[0]
        rescale(block.layer, pair, random_scales(num_channels), "fp32")
    # fp32 rounds what is stored of norms; biases then move by half a unit of fp32.
    torch.testing.assert_close(block.outputs(), expected, rtol=1e-6, atol=1e-6)
    after = block.layer.state_dict()
    assert all(
        not torch.equal(after[f"{role}.weight"], changed[f"{role}.weight"])
        for pair in pairs
        for role in (pair.producer, *pair.consumers)
    )


@pytest.mark.parametrize("variant", ["llama-gqa", "qwen3", "mistral-window", "llama-relu"])
@pytest.mark.parametrize("stored", ["bf16", "fp16"])
def test_norms_without_biases_keep_it_exactly_as_stored(
    variant: str, stored: ScaleDType, tmp_path: Path
) -> None:
    block = tiny_block(variant, tmp_path, double=True)
    expected = block.outputs()
    for pair in norm_pairs(block.layer.spec):
        used = rescale(block.layer, pair, random_scales(block.spec.hidden_size), stored)
        weight = block.layer.get_submodule(pair.producer).weight.data
        dtype = torch.bfloat16 if stored == "bf16" else torch.float16
        assert torch.equal(weight, weight.to(dtype).double())
        assert not torch.equal(used, torch.ones_like(used))
    torch.testing.assert_close(block.outputs(), expected, rtol=1e-12, atol=1e-12)


def test_channels_that_would_vanish_or_overflow_keep_their_weight(tmp_path: Path) -> None:
    block = tiny_block("llama-gqa", tmp_path, double=True)
    pair = norm_pairs(block.layer.spec)[0]
    norm = block.layer.attention_norm
    norm.weight.data[0] = 0.0
    scales = torch.ones(block.spec.hidden_size, dtype=torch.float64)
    scales[:4] = torch.tensor([3.0, 1e-9, 1e12, 2.0])
    old, expected = norm.weight.data.clone(), block.outputs()
    used = rescale(block.layer, pair, scales, "fp16")
    assert used[:3].tolist() == [1, 1, 1]
    assert float(used[3]) == pytest.approx(2.0, rel=1e-3)
    assert torch.equal(norm.weight.data[:3], old[:3])
    torch.testing.assert_close(block.outputs(), expected, rtol=1e-12, atol=1e-12)


def test_columns_of_grouped_heads_read_the_channels_of_their_key_value_head() -> None:
    # Two key-value heads of three channels, each read by two query heads.
    pair = SmoothingPair(producer="v", consumers=("o",), repeats=2, run=3)
    columns = to_columns(pair, torch.arange(6.0))
    assert columns.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]
    readers = columns_of_channels(pair, torch.arange(12.0))
    assert readers.tolist() == [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8, 11]]


def test_what_cannot_be_smoothed_is_said(tmp_path: Path) -> None:
    gelu = tiny_block("opt-gelu", tmp_path / "gelu").layer.spec
    relu = tiny_block("opt", tmp_path / "relu").layer.spec
    assert [pair.producer for pair in smoothing_pairs(gelu)] == ["attention_norm", "v", "mlp_norm"]
    assert [pair.producer for pair in smoothing_pairs(relu)][-1] == "up"
    assert pairs_left_out(relu) == ()
    (note,) = pairs_left_out(gelu)
    assert "gelu" in note


def test_post_norm_layers_pass_factors_from_v_to_o_alone(tmp_path: Path) -> None:
    variant("bert")(tmp_path)
    source = Checkpoint.open(tmp_path)
    layer = load_layer(source, 0).double()
    (pair,) = smoothing_pairs(layer.spec)
    assert (pair,) == input_pairs(layer.spec)
    assert (pair.producer, pair.consumers) == ("v", ("o",))
    assert any("residual" in note for note in pairs_left_out(layer.spec))
    x_BTD = torch.randn(2, 7, source.spec.hidden_size, dtype=torch.float64)
    expected = layer(x_BTD, *layer.positions(7))
    rescale(layer, pair, random_scales(layer.v.weight.shape[0]), "fp32")
    torch.testing.assert_close(layer(x_BTD, *layer.positions(7)), expected, rtol=1e-6, atol=1e-6)


def test_replaced_weights_come_back_whatever_happens(tmp_path: Path) -> None:
    block = tiny_block("llama-gqa", tmp_path)
    before = linear_weight(block.layer, "o").clone()

    def fail_inside() -> None:
        with replaced(block.layer, {"o": torch.zeros_like(before)}):
            assert not linear_weight(block.layer, "o").any()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_inside()
    assert torch.equal(linear_weight(block.layer, "o"), before)

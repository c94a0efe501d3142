"""Moves factors from one part of a layer to the next (the pairs of models/decoder/smoothing.py).

Shapes: P channels of a pair's producer, I columns of its consumers, O rows of a linear layer.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from paredown.compress.grid import TORCH_DTYPES
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.norms import LayerNorm, RMSNorm
from paredown.models.decoder.points import input_point
from paredown.models.decoder.smoothing import SmoothingPair
from paredown.spec.weight import ScaleDType


def linear_weight(layer: Layer, role: str) -> Tensor:
    """Returns the layer's own weight [O, I]."""
    weight = layer.get_submodule(role).weight
    assert isinstance(weight, Tensor)
    return weight.data


def pair_input(pair: SmoothingPair) -> str:
    """Returns the point that all of the pair's consumers read; each expert reads some of its
    tokens."""
    norms = {
        "attention_norm": "attention_input",
        "cross_norm": "cross_input",
        "mlp_norm": "mlp_input",
    }
    return norms.get(pair.producer) or input_point(pair.consumers[0])


def fitting(pair: SmoothingPair, scales_P: Tensor) -> Tensor:
    """Returns the scales, or the nearest powers of two if the pair takes no others."""
    return scales_P.log2().round().exp2() if pair.takes_powers_of_two else scales_P


def to_columns(pair: SmoothingPair, values_P: Tensor) -> Tensor:
    """Returns the value of each column's channel, [I]."""
    return values_P.view(-1, pair.run).repeat_interleave(pair.repeats, dim=0).flatten()


def columns_of_channels(pair: SmoothingPair, values_I: Tensor) -> Tensor:
    """Returns the columns that read each channel, [P, repeats]."""
    return values_I.view(-1, pair.repeats, pair.run).transpose(1, 2).reshape(-1, pair.repeats)


@torch.no_grad()
def rescale(layer: Layer, pair: SmoothingPair, scales_P: Tensor, stored: ScaleDType) -> Tensor:
    """Divides the producer's channels by `scales_P` (above zero) and multiplies the columns that
    read them, in place. Returns the factors used.

    A norm's weight is first rounded to its dtype `stored`, and the factor becomes old weight / new
    weight, so that the columns fit the stored value. A channel whose weight would become zero or
    infinite keeps it. Biases are rounded too: with a bias, the function changes by at most half a
    unit in its last place, as for any value written in that dtype.
    """
    producer = layer.get_submodule(pair.producer)
    if isinstance(producer, nn.Linear):
        producer.weight.data /= scales_P[:, None]
    else:
        assert isinstance(producer, RMSNorm | LayerNorm)
        scales_P = _divide_norm(producer, scales_P, stored)
    bias = getattr(producer, "bias", None)
    if bias is not None:
        bias.data = _as_stored(bias.data / scales_P, stored)
    for role in (*pair.consumers, *pair.followers):
        linear_weight(layer, role).mul_(to_columns(pair, scales_P))
    return scales_P


@contextmanager
def replaced(layer: Layer, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Replaces the weights of the named linear layers until the block ends."""
    kept = {role: linear_weight(layer, role) for role in weights}
    try:
        for role, weight in weights.items():
            layer.get_submodule(role).weight.data = weight
        yield
    finally:
        for role, weight in kept.items():
            layer.get_submodule(role).weight.data = weight


def _divide_norm(norm: RMSNorm | LayerNorm, scales_P: Tensor, stored: ScaleDType) -> Tensor:
    """Divides the norm's factor, which is the sum of the stored weight and the norm's offset."""
    old_P, offset = norm.weight.data, norm.offset
    new_P = _as_stored((old_P + offset) / scales_P - offset, stored)
    factors_P = (old_P + offset) / (new_P + offset)
    possible_P = torch.isfinite(new_P) & torch.isfinite(factors_P) & (factors_P > 0)
    norm.weight.data = torch.where(possible_P, new_P, old_P)
    return torch.where(possible_P, factors_P, torch.ones_like(old_P))


def _as_stored(values: Tensor, stored: ScaleDType) -> Tensor:
    return values.to(TORCH_DTYPES[stored]).to(values.dtype)

"""Fake quantization one weight at a time, in float64."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """The values of a group, and the gradients of its weights and of its scale."""

    values: list[float]
    weight_gradients: list[float]
    scale_gradient: float


def fake_quantized_group(
    weights: Sequence[float], gradients: Sequence[float], scale: float, zero: float, bits: int
) -> Group:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    values, weight_gradients, terms = [], [], []
    for weight, gradient in zip(weights, gradients, strict=True):
        place = weight / scale + zero
        nearest = round(place)  # ties to even
        code = min(max(nearest, low), high)
        values.append((code - zero) * scale)
        is_code = low <= nearest <= high
        weight_gradients.append(gradient if is_code else 0.0)
        terms.append(gradient * (code - place if is_code else code - zero))
    factor = 1 / math.sqrt(len(weights) * max(-low, high))
    return Group(values, weight_gradients, factor * math.fsum(terms))

"""Measures the PyTorch decoder with rounding at any of its points, on the text and with the sums of
evaluate/quality/quality.py.

Letters: T tokens, D hidden size, V vocabulary. A whole window runs at once, without a cache. A
variant computes only from its first changed layer on; the state before comes from the plain
decoder.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paredown.evaluate.quality.perplexity import Predictions
from paredown.evaluate.quality.quality import Quality, QualitySums
from paredown.evaluate.texts.text import EvalText, EvalWindow
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import EXPERT_INPUT, LAYER_POINTS, MODEL_POINTS, Tap
from paredown.progress import OnCount
from paredown.spec.experts import split_role

# Tokens whose logits are held at once per variant.
CHUNK_TOKENS = 256
OUTPUT = "output.weight"

# Returns the values that replace those at a point.
PointTap = Callable[[Tensor], Tensor]
# A weight's values, or a function that makes them on each use where they do not all fit in memory.
Values = Tensor | Callable[[], Tensor]
Place = Decoder | Layer


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The difference between a decoder and the plain one.

    `weights`  replacements by their names in the decoder ("layers.0.q.weight"); with tied
               embeddings, "output.weight" replaces only the output layer
    `taps`     by point: "layers.0.scores", "embedding", ... (models/decoder/decoder.py);
               "layers.0.down_input" is that of every expert too
    """

    weights: Mapping[str, Values] = field(default_factory=dict)
    taps: Mapping[str, PointTap] = field(default_factory=dict)

    def first_layer(self, num_layers: int) -> int:
        """Returns the first layer that computes something else; `num_layers` where none does."""
        places = [_layer_of(name, num_layers) for name in (*self.weights, *self.taps)]
        return min(places, default=num_layers)


def measure_variants(
    decoder: Decoder,
    variants: Sequence[Variant],
    text: EvalText,
    reference: Decoder | None = None,
    on_progress: OnCount | None = None,
) -> tuple[list[Quality], Quality]:
    """Returns each variant's quality in order, and that of the reference, which is another decoder
    or the plain `decoder`. One window of the reference's logits is held, T x V numbers."""
    reference_sums, sums = QualitySums(), [QualitySums() for _ in variants]
    done, total = 0, len(text.windows) * (len(variants) + 1)

    def step() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, total)

    with torch.inference_mode():
        for window in text.windows:
            plain = _Plain(reference or decoder, window)
            for first, expected in plain.predictions.items():
                targets = window.targets[first : first + CHUNK_TOKENS]
                reference_sums.add(expected, targets, None)
            step()
            for variant, own in zip(variants, sums, strict=True):
                start_TD = plain.before if reference is None else None
                _measure(decoder, variant, window, plain.predictions, start_TD, own)
                step()
    qualities = [own.quality(text, compared=True) for own in sums]
    return qualities, reference_sums.quality(text, compared=False)


@contextmanager
def applied(decoder: Decoder, variant: Variant) -> Iterator[None]:
    """Applies the variant's weights and taps inside the block, after the decoder's own taps. The
    caller handles "output.weight" of tied embeddings."""
    kept: dict[str, Tensor] = {}
    taps: list[tuple[Place, Tap]] = []
    try:
        for name, given in variant.weights.items():
            if name == OUTPUT and decoder.spec.is_tied:
                continue
            parameter, values = decoder.get_parameter(name), _made(given)
            assert parameter.shape == values.shape, (name, parameter.shape, values.shape)
            kept[name] = parameter.data
            parameter.data = values
        for place, own in _taps_by_place(decoder, variant).items():
            taps.append((place, place.tap))
            place.tap = _chained(place.tap, own)
        yield
    finally:
        for name, before in kept.items():
            decoder.get_parameter(name).data = before
        for place, tap in taps:
            place.tap = tap


class _Plain:
    """The reference's state on one window: `before` each layer and after the last one, [1, T, D],
    and its `predictions` by their first token."""

    def __init__(self, decoder: Decoder, window: EvalWindow) -> None:
        ids_BT = torch.tensor([window.inputs])
        positions = decoder.positions(ids_BT.shape[1])
        self.before = [decoder.embed(ids_BT)]
        for layer, (table, mask_TT) in zip(decoder.layers, positions, strict=True):
            self.before.append(layer(self.before[-1], table, mask_TT))
        self.predictions = {
            first: Predictions.of(logits_TV.numpy())
            for first, logits_TV in _logits(decoder, self.before[-1], Variant())
        }


def _measure(
    decoder: Decoder,
    variant: Variant,
    window: EvalWindow,
    expected: Mapping[int, Predictions],
    before: Sequence[Tensor] | None,
    own: QualitySums,
) -> None:
    ids_BT = torch.tensor([window.inputs])
    positions = decoder.positions(ids_BT.shape[1])
    first_layer = 0 if before is None else max(0, variant.first_layer(len(decoder.layers)))
    embeds = before is None or variant.first_layer(len(decoder.layers)) < 0
    with applied(decoder, variant):
        x_BTD = decoder.embed(ids_BT) if embeds or before is None else before[first_layer]
        for layer, (table, mask_TT) in list(zip(decoder.layers, positions, strict=True))[
            first_layer:
        ]:
            x_BTD = layer(x_BTD, table, mask_TT)
        for first, logits_TV in _logits(decoder, x_BTD, variant):
            targets = window.targets[first : first + CHUNK_TOKENS]
            own.add(Predictions.of(logits_TV.numpy()), targets, expected[first])


def _logits(decoder: Decoder, x_BTD: Tensor, variant: Variant) -> Iterator[tuple[int, Tensor]]:
    """Yields logits [T, V] of `CHUNK_TOKENS` at a time, with the first token of each chunk."""
    output_VD = _made(variant.weights[OUTPUT]) if OUTPUT in variant.weights else None
    for first in range(0, x_BTD.shape[1], CHUNK_TOKENS):
        chunk_BTD = x_BTD[:, first : first + CHUNK_TOKENS]
        yield first, decoder.predict(chunk_BTD, output_VD)[0]


def _made(values: Values) -> Tensor:
    return values if isinstance(values, Tensor) else values()


def _layer_of(name: str, num_layers: int) -> int:
    """Returns the layer of a weight or point: -1 before the first, `num_layers` after the last."""
    if name.startswith("layers."):
        return int(name.split(".")[1])
    return -1 if "embedding" in name else num_layers


def _taps_by_place(decoder: Decoder, variant: Variant) -> dict[Place, dict[str, PointTap]]:
    places: dict[Place, dict[str, PointTap]] = {}
    for name, tap in variant.taps.items():
        place: Place = decoder
        point, known = name, set(MODEL_POINTS)
        if name.startswith("layers."):
            _, index, point = name.split(".", 2)
            layer = decoder.layers[int(index)]
            assert isinstance(layer, Layer)
            place, known = layer, set(LAYER_POINTS)
        assert point in known or split_role(point)[1] in {*known, EXPERT_INPUT}, name
        places.setdefault(place, {})[point] = tap
    return places


def _chained(tap: Tap, own: Mapping[str, PointTap]) -> Tap:
    def run(point: str, x: Tensor) -> Tensor:
        x = tap(point, x)
        # A tap without an owner applies to the layer's MLP and to every expert's.
        found = own.get(point) or own.get(split_role(point)[1])
        return x if found is None else found(x)

    return run

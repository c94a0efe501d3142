"""Measures an encoder in PyTorch with rounding at any of its points, on the texts of a task.

Texts of one length are computed together, so none is padded: a scale that belongs to a whole tensor
is that of real tokens alone. A variant computes only from its first changed layer on.

Shapes: B texts of one length, T tokens, D hidden size, N all texts, E outputs of a text.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paredown.evaluate.quality.simulated import PointTap, Variant, applied
from paredown.evaluate.quality.task_quality import (
    BATCH_TEXTS,
    Outputs,
    TaskQuality,
    TaskTexts,
    task_quality,
)
from paredown.executors.encoder_protocol import TokenText
from paredown.models.decoder.decoder import Decoder
from paredown.progress import OnCount


@dataclass(frozen=True, kw_only=True)
class TextBatch:
    """Texts of one length. `places` are their numbers among all texts."""

    ids_BT: Tensor
    types_BT: Tensor
    places: tuple[int, ...]


def text_batches(texts: Sequence[TokenText], batch_texts: int = BATCH_TEXTS) -> list[TextBatch]:
    """Returns batches of at most `batch_texts` texts that are equally long, the shortest first."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        by_length[len(text.token_ids)].append(place)
    return [
        _batch(texts, places[start : start + batch_texts])
        for _, places in sorted(by_length.items())
        for start in range(0, len(places), batch_texts)
    ]


def measure_text_variants(
    decoder: Decoder,
    variants: Sequence[Variant],
    task: TaskTexts,
    on_progress: OnCount | None = None,
) -> tuple[list[TaskQuality], TaskQuality]:
    """Returns each variant's quality in order, and that of the plain decoder, which has a head."""
    batches = text_batches(task.texts, task.batch_texts)
    plain, found = _Collected(len(task.texts)), [_Collected(len(task.texts)) for _ in variants]
    with torch.inference_mode():
        for number, batch in enumerate(batches):
            before = list(_states(decoder, batch))
            plain.put(batch, _outputs(decoder, before[-1]))
            for variant, own in zip(variants, found, strict=True):
                own.put(batch, _varied(decoder, variant, batch, before))
            if on_progress is not None:
                on_progress(number + 1, len(batches))
    expected_NE = plain.all()
    qualities = [task_quality(task, own.all(), expected_NE) for own in found]
    return qualities, task_quality(task, expected_NE, expected_NE)


def watch_points(
    decoder: Decoder, texts: Sequence[TokenText], taps: Mapping[str, PointTap]
) -> None:
    """Runs the decoder on texts with taps at points (`Variant`)."""
    with torch.inference_mode(), applied(decoder, Variant(taps=taps)):
        for batch in text_batches(texts, len(texts)):
            *_, last_BTD = _states(decoder, batch)
            _outputs(decoder, last_BTD)


class _Collected:
    """The outputs of all texts, as batches bring them."""

    def __init__(self, num_texts: int) -> None:
        self._num_texts = num_texts
        self._rows_NE: Outputs | None = None

    def put(self, batch: TextBatch, outputs_BE: Tensor) -> None:
        if self._rows_NE is None:
            self._rows_NE = np.empty((self._num_texts, outputs_BE.shape[1]), np.float32)
        self._rows_NE[list(batch.places)] = outputs_BE.numpy()

    def all(self) -> Outputs:
        assert self._rows_NE is not None, "no text was measured"
        return self._rows_NE


def _batch(texts: Sequence[TokenText], places: Sequence[int]) -> TextBatch:
    chosen = [texts[place] for place in places]
    return TextBatch(
        ids_BT=torch.tensor([list(text.token_ids) for text in chosen]),
        types_BT=torch.tensor(
            [list(text.type_ids or [0] * len(text.token_ids)) for text in chosen]
        ),
        places=tuple(places),
    )


def _states(decoder: Decoder, batch: TextBatch) -> Iterator[Tensor]:
    """Yields the state before each layer and after the last one, [B, T, D]."""
    x_BTD = decoder.embed(batch.ids_BT, type_ids_BT=batch.types_BT)
    yield x_BTD
    positions = decoder.positions(batch.ids_BT.shape[1])
    for layer, (table, mask_TT) in zip(decoder.layers, positions, strict=True):
        x_BTD = layer(x_BTD, table, mask_TT)
        yield x_BTD


def _varied(
    decoder: Decoder, variant: Variant, batch: TextBatch, before: Sequence[Tensor]
) -> Tensor:
    first = variant.first_layer(len(decoder.layers))
    with applied(decoder, variant):
        if first < 0:
            *_, x_BTD = _states(decoder, batch)
            return _outputs(decoder, x_BTD)
        x_BTD = before[first]
        positions = decoder.positions(batch.ids_BT.shape[1])
        for layer, (table, mask_TT) in list(zip(decoder.layers, positions, strict=True))[first:]:
            x_BTD = layer(x_BTD, table, mask_TT)
        return _outputs(decoder, x_BTD)


def _outputs(decoder: Decoder, x_BTD: Tensor) -> Tensor:
    """Returns what the head makes of each text, [B, E], from the output of the last layer."""
    normed_BTD = decoder.tap("output_input", decoder.final_norm(x_BTD))
    return decoder.apply_head(normed_BTD)

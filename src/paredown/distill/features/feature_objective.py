"""FeatureObjective: a loss of features beside one of predictions (prediction.py).

    loss of predictions + W * loss of features

Student and teacher run side by side, a layer of the student beside those that it stands for, so
that only one layer of the teacher is remembered at a time. Shapes: B rows, T tokens, N targets, D
hidden size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.features.layer_map import LayerMap
from paredown.distill.features.layer_pair import LayerPair, PairLoss
from paredown.distill.features.prediction import Prediction
from paredown.distill.features.trace import Trace, trace
from paredown.distill.forward import embed_batch, layer_positions
from paredown.distill.teacher import DecoderTeacher
from paredown.models.decoder.attention import FusedPositions
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer


@dataclass(frozen=True, kw_only=True)
class FeatureObjective:
    """Implements Objective. `weight` is W."""

    teacher: DecoderTeacher
    prediction: Prediction
    features: PairLoss
    weight: float
    layer_map: LayerMap

    def total(
        self, student: Decoder, batch: Batch, arithmetic: Arithmetic, *, recomputes: bool
    ) -> Tensor:
        compared = self.prediction.compared(batch)
        with computing(arithmetic, batch.device_type):
            own_BTD, taught_BTD, features_N = self._walk(student, compared, recomputes=recomputes)
        predicted = self.prediction.total(student, own_BTD, taught_BTD, batch, arithmetic)
        return predicted + self.weight * self.prediction.total_of(features_N, batch)

    def _walk(
        self, student: Decoder, batch: Batch, *, recomputes: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the last states of both models, and the loss of features of each target."""
        own_BTD, taught_BTD = (
            embed_batch(decoder, batch) for decoder in (student, self.teacher.decoder)
        )
        losses_N = self.features.of_embedding(own_BTD, taught_BTD, batch)
        for index, layer in enumerate(student.layers):
            assert isinstance(layer, Layer)
            taught, taught_BTD = self._teach(index, taught_BTD, batch)
            step = _Step(
                index=index,
                layer=layer,
                positions=layer_positions(layer, batch),
                taught=taught,
                state_BTD=taught_BTD,
                features=self.features,
                batch=batch,
            )
            if recomputes:
                own_BTD, more_N = checkpoint(
                    step.run, own_BTD, use_reentrant=False, preserve_rng_state=False
                )
            else:
                own_BTD, more_N = step.run(own_BTD)
            losses_N = losses_N + more_N
        return own_BTD, taught_BTD, losses_N

    def _teach(self, index: int, x_BTD: Tensor, batch: Batch) -> tuple[Trace, Tensor]:
        """Runs the teacher's layers that the student's layer stands for."""
        found = None
        with torch.no_grad():
            for number in self.layer_map.layers(index):
                layer = self.teacher.decoder.layers[number]
                assert isinstance(layer, Layer)
                positions = layer_positions(layer, batch)
                if number == self.layer_map.inner(index):
                    found = trace(layer, x_BTD, positions)
                    x_BTD = found.output_BTD
                else:
                    x_BTD = layer(x_BTD, *positions)
        assert found is not None
        return found, x_BTD


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A layer of the student, ready to run."""

    index: int
    layer: Layer
    positions: FusedPositions
    taught: Trace
    state_BTD: Tensor
    features: PairLoss
    batch: Batch

    def run(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the layer's output, and what it adds to the loss of each target."""
        own = trace(self.layer, x_BTD, self.positions)
        pair = LayerPair(index=self.index, own=own, taught=self.taught, state_BTD=self.state_BTD)
        return own.output_BTD, self.features.of_layer(pair, self.batch)

"""One transformer layer in memory, and the calibration inputs that pass through it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat

from torch import Tensor

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import Tap
from paredown.models.decoder.read import load_layer
from paredown.spec.model import ModelSpec

# The size that a batch's attention scores would have if they were kept; for long windows they are a
# layer's largest tensor. Tensors of 32 MB and more get new pages from the system each time.
_SCORES_BYTES = 24 << 20


class StopForwardError(Exception):
    """Ends a forward pass once everything that is wanted has been seen."""


@dataclass(frozen=True, kw_only=True)
class LayerBlock:
    """Implements Block of compress/quantize/method.py. `encodings` has the encoder's vectors where
    the layer has cross-attention."""

    spec: ModelSpec
    layer: Layer
    table: tuple[Tensor, Tensor] | None
    mask: Tensor
    activations: ActivationFile
    batch_size: int
    encodings: ActivationFile | None = None

    def inputs(self) -> Iterator[Tensor]:
        return self.activations.batches(self.batch_size)

    def encoded(self) -> Iterator[Tensor | None]:
        if self.encodings is None:
            return repeat(None, -(-self.activations.num_sequences // self.batch_size))
        return self.encodings.batches(self.batch_size)

    def run(self, tap: Tap, stop_after: str | None = None) -> None:
        with self.tapped(stopping(tap, stop_after)):
            for batch_BTD, encoded_BSD in zip(self.inputs(), self.encoded(), strict=True):
                try:
                    self.layer(batch_BTD, self.table, self.mask, encoded_BSD)
                except StopForwardError:
                    continue

    @contextmanager
    def tapped(self, tap: Tap) -> Iterator[None]:
        before, self.layer.tap = self.layer.tap, tap
        try:
            yield
        finally:
            self.layer.tap = before


def stopping(tap: Tap, stop_after: str | None) -> Tap:
    """Returns the tap, which raises StopForwardError after a point."""

    def watched(point: str, x: Tensor) -> Tensor:
        changed = tap(point, x)
        if point == stop_after:
            raise StopForwardError
        return changed

    return watched


def load_block(
    source: Checkpoint,
    index: int,
    activations: ActivationFile,
    encodings: ActivationFile | None = None,
) -> LayerBlock:
    """Loads layer `index` of the source in float32; nothing else of the model is read."""
    spec = source.spec
    layer = load_layer(source, index)
    layer.is_fused = True
    table, mask = layer.positions(activations.num_tokens)
    assert mask is not None
    return LayerBlock(
        spec=spec,
        layer=layer,
        table=table,
        mask=mask,
        activations=activations,
        batch_size=batch_size(
            spec, activations.num_tokens, 0 if encodings is None else encodings.num_tokens
        ),
        encodings=encodings,
    )


def batch_size(spec: ModelSpec, num_tokens: int, num_encoded: int = 0) -> int:
    """Returns how many windows pass through a layer together; `num_encoded` tokens of an encoder
    belong to each."""
    num_heads = max(layer.attention.num_heads for layer in spec.layer_counts)
    scores_bytes = 4 * num_heads * max(num_tokens, num_encoded) ** 2
    return max(1, _SCORES_BYTES // scores_bytes)

"""The calibration text as the inputs of a model's first layer."""

from collections.abc import Iterator

from torch import Tensor

from paredown.compress.calibrate.block import batch_size
from paredown.compress.calibrate.calibration import Calibration
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.read import embed_tokens


def embedded(source: Checkpoint, calibration: Calibration) -> Iterator[Tensor]:
    """Yields the inputs of the first layer, [B, T, D] each."""
    size = batch_size(source.spec, calibration.num_tokens)
    for start in range(0, calibration.num_sequences, size):
        yield embed_tokens(source, calibration.windows_NT[start : start + size])

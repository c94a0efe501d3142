"""The size of a checkpoint's weights."""

from paredown.models.checkpoint import Checkpoint
from paredown.spec.model import ModelSpec


def weight_bytes(checkpoint: Checkpoint) -> int:
    """Returns the bytes of all tensors that the model uses: codes, scales, zero points,
    embeddings, norms."""
    return sum(tensor.array.nbytes for tensor in checkpoint.tensors.values())


def checkpoint_bits_per_weight(checkpoint: Checkpoint, original: ModelSpec | None = None) -> float:
    """Returns the bits of the weight files over the parameters of the whole model, both with
    embeddings and norms; a tied output layer counts once. Parameters are those of `original` if it
    is given: an output layer that was untied to be quantized adds none."""
    spec = checkpoint.spec if original is None else original
    return 8 * checkpoint.file_bytes / spec.num_parameters()

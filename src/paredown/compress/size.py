"""How large a checkpoint's weights are."""

from paredown.models.checkpoint import Checkpoint
from paredown.spec.model import ModelSpec


def weight_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of all tensors that the model uses: codes, scales, zero points, embeddings, norms."""
    return sum(tensor.array.nbytes for tensor in checkpoint.tensors.values())


def checkpoint_bits_per_weight(checkpoint: Checkpoint, original: ModelSpec | None = None) -> float:
    """Bits of the files that hold the weights over the number of parameters of the whole model,
    embeddings and norms counted in both; a tied output layer counts once. Parameters are those of
    the `original` where it is known: an output layer untied to be quantized is no new parameter."""
    spec = checkpoint.spec if original is None else original
    return 8 * checkpoint.file_bytes / spec.num_parameters()

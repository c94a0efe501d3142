"""How large a checkpoint's weights are."""

from paredown.models.checkpoint import Checkpoint


def weight_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of all tensors that the model uses: codes, scales, zero points, embeddings, norms."""
    return sum(tensor.array.nbytes for tensor in checkpoint.tensors.values())


def checkpoint_bits_per_weight(checkpoint: Checkpoint) -> float:
    """Bits of all stored tensors over the number of parameters of the whole model, embeddings and
    norms counted in both; a tied output layer counts once."""
    return 8 * weight_bytes(checkpoint) / checkpoint.spec.num_parameters()

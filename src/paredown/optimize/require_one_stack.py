"""The search times one stack of layers: a decoder's, or an encoder's."""

from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint


def require_one_stack(checkpoint: Checkpoint) -> None:
    """Raises UnsupportedError for an encoder-decoder, whose prompts are not those of a decoder."""
    if checkpoint.spec.encoder is not None:
        raise UnsupportedError(
            "`paredown optimize` times prompts and steps of one stack of layers, and an "
            "encoder-decoder has two",
            seen=f"{checkpoint.path}, family {checkpoint.spec.family}",
            remedy="Compress it by the recipes in question (`paredown compress --recipe int8`, "
            "w8a8, awq-int4-g64): each proof says how far its predictions moved.",
        )

"""The search and the sensitivities compare what models predict."""

from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint


def require_predictions(checkpoint: Checkpoint, verb: str) -> None:
    """Raises UnsupportedError for an encoder, which predicts no tokens, and for an encoder-decoder,
    whose prompts are not those of a decoder."""
    if checkpoint.spec.encoder is not None:
        raise UnsupportedError(
            f"`paredown {verb}` times prompts and steps of one stack of layers, and an "
            "encoder-decoder has two",
            seen=f"{checkpoint.path}, family {checkpoint.spec.family}",
            remedy="Compress it by the recipes in question (`paredown compress --recipe int8`, "
            "w8a8, awq-int4-g64): each proof says how far its predictions moved.",
        )
    if not checkpoint.spec.generates:
        raise UnsupportedError(
            f"`paredown {verb}` compares predictions of tokens, and an encoder makes none",
            seen=f"{checkpoint.path}, family {checkpoint.spec.family}",
            remedy="Compress it by the recipes in question (`paredown compress --recipe int8`, "
            "w8a8, int4-g64): each proof says how near its vectors are to the original's.",
        )

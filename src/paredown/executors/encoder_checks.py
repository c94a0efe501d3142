"""Checks of what is asked of a model: an encoder has a head and takes texts within its sizes, and
a model without an output layer generates nothing."""

from collections.abc import Sequence

from paredown.errors import UnsupportedError
from paredown.executors.encoder_protocol import TokenText
from paredown.spec.model import ModelSpec


def check_encodes(spec: ModelSpec) -> None:
    """Raises UnsupportedError for a model that only generates."""
    if spec.head is None:
        raise UnsupportedError(
            "this model makes no vectors, scores or labels of texts",
            seen=f"a model of the family {spec.family} without a head",
            remedy="Name an encoder, or the folder of a decoder that embeds: one with the "
            "modules.json of sentence-transformers, or a class for sequence classification.",
        )


def check_generates(spec: ModelSpec) -> None:
    """Raises UnsupportedError for an encoder, which predicts no tokens."""
    if not spec.generates:
        raise UnsupportedError(
            "this model writes no text: it makes vectors, scores or labels of texts",
            seen=f"a model of the family {spec.family} without an output layer",
            remedy="Use it as an encoder (paredown.Encoder, --task embed), or name a model that "
            "generates.",
        )


def check_texts(spec: ModelSpec, texts: Sequence[TokenText]) -> None:
    """Raises ValueError for an empty text, and for tokens, types or lengths beyond the model."""
    num_types = spec.embedding.num_token_types
    for number, text in enumerate(texts):
        num_tokens = len(text.token_ids)
        if not 0 < num_tokens <= spec.max_positions:
            raise ValueError(
                f"text {number} has {num_tokens} tokens, not from 1 to {spec.max_positions}"
            )
        if min(text.token_ids) < 0 or max(text.token_ids) >= spec.vocab_size:
            raise ValueError(
                f"text {number} has tokens outside 0 to {spec.vocab_size - 1}: "
                f"{min(text.token_ids)} to {max(text.token_ids)}"
            )
        if not 0 <= text.num_unseen < num_tokens:
            raise ValueError(
                f"text {number} has {text.num_unseen} unseen tokens, of {num_tokens} in all"
            )
        if text.type_ids is None:
            continue
        if len(text.type_ids) != num_tokens:
            raise ValueError(
                f"text {number} has {len(text.type_ids)} types for {num_tokens} tokens"
            )
        if min(text.type_ids) < 0 or max(text.type_ids) >= max(1, num_types):
            raise ValueError(
                f"text {number} has types outside 0 to {max(1, num_types) - 1}: "
                f"{min(text.type_ids)} to {max(text.type_ids)}"
            )

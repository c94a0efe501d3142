"""Checks a step's slices before anything is computed."""

from collections.abc import Sequence

from paredown.executors.protocol import SequenceSlice
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec


def check_slices(slices: Sequence[SequenceSlice], context: Context, num_pages: int) -> None:
    """Raises ValueError for a slice beyond the vocabulary, the context or its pages."""
    kept = KeptPages.of(context)
    for part in slices:
        for token_id in part.token_ids:
            if not 0 <= token_id < context.spec.vocab_size:
                raise ValueError(f"token {token_id} is outside the vocabulary")
        length, limit = len(part.token_ids), context.max_request_tokens
        if length < 1 or part.start < 0 or part.start + length > limit:
            raise ValueError(
                f"a slice of {length} tokens at {part.start} leaves the context of {limit}"
            )
        if not 0 <= part.num_logits <= length:
            raise ValueError("num_logits out of range")
        if (len(part.pages) + part.num_released_pages) * PAGE_SIZE < part.start + length:
            raise ValueError("a slice has too few pages")
        if not 0 <= part.num_released_pages <= kept.num_released(part.start):
            raise ValueError("a slice has released pages that it sees")
        for page in part.pages:
            _check_page(page, num_pages)
        if context.spec.encoder is not None:
            _check_across(part, context.spec.encoder, num_pages)


def _check_across(part: SequenceSlice, encoder: ModelSpec, num_pages: int) -> None:
    """Raises ValueError for a text that cross-attention cannot read, or the encoder not encode."""
    num_tokens, token_ids = part.num_cross_tokens, part.encoder_token_ids
    if num_tokens < 1 or len(part.cross_pages) * PAGE_SIZE < num_tokens:
        raise ValueError("the text for cross-attention has too few pages, or no tokens")
    for page in part.cross_pages:
        _check_page(page, num_pages)
    if not token_ids:
        return
    if len(token_ids) != num_tokens or num_tokens > encoder.max_positions:
        raise ValueError(
            f"a text of {len(token_ids)} tokens is read across as {num_tokens}; the encoder takes "
            f"{encoder.max_positions}"
        )
    for token_id in token_ids:
        if not 0 <= token_id < encoder.vocab_size:
            raise ValueError(f"token {token_id} is outside the vocabulary")


def _check_page(page: int, num_pages: int) -> None:
    if not 0 <= page < num_pages:
        raise ValueError(f"page {page} is unknown")

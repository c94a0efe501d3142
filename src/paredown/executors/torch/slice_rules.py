"""Checks a step's slices before anything is computed."""

from collections.abc import Sequence

from paredown.executors.protocol import SequenceSlice
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE


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
            if not 0 <= page < num_pages:
                raise ValueError(f"page {page} is unknown")

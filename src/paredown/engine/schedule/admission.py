"""Refuses prompts that can never be served, and says what would help."""

from paredown.errors import CapacityError, RequestError
from paredown.spec.kv import PAGE_SIZE


def check_prompt(
    num_prompt_tokens: int, *, max_positions: int, max_tokens: int, num_pages: int
) -> None:
    """Raises RequestError or CapacityError for a prompt that can never be answered. `max_tokens` is
    the longest request that `num_pages` can hold."""
    if num_prompt_tokens < 1:
        raise RequestError(
            "the prompt is empty", seen="0 tokens", remedy="Give at least one token."
        )
    if num_prompt_tokens + 1 > max_positions:
        raise RequestError(
            "the prompt is longer than the context of the model allows",
            seen=f"{num_prompt_tokens} prompt tokens, a context of {max_positions}",
            remedy=f"Shorten the prompt to {max_positions - 1} tokens or fewer.",
        )
    if num_prompt_tokens + 1 > max_tokens:
        raise CapacityError(
            "the prompt does not fit in the key-value pages",
            seen=f"{num_prompt_tokens} prompt tokens + 1; {num_pages} pages x {PAGE_SIZE} tokens = "
            f"{max_tokens}",
            remedy="Shorten the prompt, or give more pages (--pages or --kv-memory of serve "
            "and bench, num_pages of LLM).",
        )


def check_encoder_prompt(num_prompt_tokens: int, *, max_positions: int, num_pages: int) -> None:
    """Raises as `check_prompt` does, for the prompt of an encoder-decoder. Its pages are there
    beside those of the answer, which needs one at least."""
    if num_prompt_tokens < 1:
        raise RequestError(
            "the prompt is empty", seen="0 tokens", remedy="Give at least one token."
        )
    if num_prompt_tokens > max_positions:
        raise RequestError(
            "the prompt is longer than the encoder's context",
            seen=f"{num_prompt_tokens} prompt tokens, a context of {max_positions}",
            remedy=f"Shorten the prompt to {max_positions} tokens or fewer.",
        )
    most = (num_pages - 1) * PAGE_SIZE
    if num_prompt_tokens > most:
        raise CapacityError(
            "the prompt does not fit in the key-value pages",
            seen=f"{num_prompt_tokens} prompt tokens; {num_pages} pages x {PAGE_SIZE} tokens, one "
            "page of them for the answer",
            remedy="Shorten the prompt, or give more pages (--pages or --kv-memory of serve "
            "and bench, num_pages of LLM).",
        )

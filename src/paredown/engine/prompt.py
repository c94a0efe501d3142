"""Turns prompts into tokens, in one place: which tokens surround a text, and what counts as a token
id."""

from array import array
from collections.abc import Iterable
from operator import index
from typing import Protocol

from paredown.engine.sampling.field_rules import MAX_SEEN_CHARS
from paredown.errors import RequestError
from paredown.shown import quoted

# The longest character in UTF-8.
MAX_CHAR_BYTES = 4
# Where a tokenizer's own bound is not known. A token of a word has fewer than 10 bytes; one of
# blanks may have more.
USUAL_MAX_TOKEN_BYTES = 64


class PromptTokenizer(Protocol):
    """The part of a tokenizer that prompts use."""

    @property
    def prompt_prefix(self) -> tuple[int, ...]: ...

    @property
    def prompt_suffix(self) -> tuple[int, ...]: ...

    @property
    def max_token_bytes(self) -> int | None:
        """No token stands for more bytes of a text; None where that is not known, and then
        USUAL_MAX_TOKEN_BYTES is the bound."""
        ...

    def encode(self, text: str, /) -> list[int]: ...

    def render_chat(self, messages: list[dict[str, object]], /) -> str: ...


def check_length(tokenizer: PromptTokenizer, text: str, max_tokens: int) -> None:
    """Raises RequestError for a text that must have more than `max_tokens` tokens, before it is
    tokenized."""
    most = tokenizer.max_token_bytes
    if most is None:
        most = USUAL_MAX_TOKEN_BYTES
    if len(text) * MAX_CHAR_BYTES <= max_tokens * most:
        return
    num_bytes = len(text.encode("utf-8", "surrogatepass"))
    if num_bytes > max_tokens * most:
        raise RequestError(
            "the text is longer than any prompt of this model",
            seen=f"{num_bytes} bytes; {max_tokens} tokens of at most {most} bytes",
            remedy=f"Shorten it to what {max_tokens} tokens hold.",
        )


def encode_prompt(
    tokenizer: PromptTokenizer, text: str, max_tokens: int | None = None
) -> list[int]:
    """Encodes plain text with the tokens that the tokenizer puts around it, mostly a leading bos.
    Raises RequestError if its length implies more than `max_tokens`."""
    if max_tokens is not None:
        check_length(tokenizer, text, max_tokens)
    return [*tokenizer.prompt_prefix, *tokenizer.encode(text), *tokenizer.prompt_suffix]


def begins_twice(tokenizer: PromptTokenizer, token_ids: list[int]) -> bool:
    """Returns whether the text itself begins with the tokens put before it, so that the model sees
    them twice."""
    prefix = list(tokenizer.prompt_prefix)
    return bool(prefix) and token_ids[: 2 * len(prefix)] == prefix * 2


def encode_chat(
    tokenizer: PromptTokenizer, messages: list[dict[str, object]], max_tokens: int | None = None
) -> list[int]:
    """Encodes a conversation. Only the chat template decides whether it begins with bos. Raises
    RequestError if the rendered text's length implies more than `max_tokens`."""
    text = tokenizer.render_chat(messages)
    if max_tokens is not None:
        check_length(tokenizer, text, max_tokens)
    return tokenizer.encode(text)


def as_token_ids(prompt: Iterable[int], vocab_size: int) -> list[int]:
    """Returns the ids as plain integers. Raises RequestError for anything else, and for ids outside
    the vocabulary."""
    if not isinstance(prompt, Iterable):
        raise no_prompt(prompt)
    listed = list(prompt)
    # The usual case; converting to an array takes twice as long.
    if set(map(type, listed)) == {int}:
        if not 0 <= min(listed) <= max(listed) < vocab_size:
            raise _no_token_id(listed, vocab_size)
        return listed
    try:
        token_ids = array("i", listed)
    except (TypeError, OverflowError) as error:
        raise _no_token_id(listed, vocab_size) from error
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        raise _no_token_id(listed, vocab_size)
    return token_ids.tolist()


def no_prompt(seen: object) -> RequestError:
    return RequestError(
        "a prompt is a text or a list of token ids",
        seen=quoted(seen, MAX_SEEN_CHARS),
        remedy="Give one, or a list of them; a single id stands in a list.",
    )


def _no_token_id(prompt: list[int], vocab_size: int) -> RequestError:
    return RequestError(
        "the prompt holds a token id that is out of vocabulary",
        seen=quoted(next(one for one in prompt if not _is_token_id(one, vocab_size))),
        remedy=f"Token ids are integers from 0 to {vocab_size - 1}; leave out of a text what names "
        "a token that only the tokenizer has.",
    )


def _is_token_id(one: int, vocab_size: int) -> bool:
    try:
        return 0 <= index(one) < vocab_size
    except TypeError:
        return False

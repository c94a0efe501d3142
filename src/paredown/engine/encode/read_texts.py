"""Turns texts into tokens: prompts, special tokens, and what becomes of texts that are too long."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from paredown.engine.encode.encode_job import TextCounts
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.prompt import as_token_ids, check_length
from paredown.engine.sampling.field_rules import MAX_SEEN_CHARS, ParameterError
from paredown.errors import RequestError
from paredown.executors.encoder_protocol import TokenText
from paredown.shown import quoted

Text = str | Sequence[int]
# Whether texts that are longer than the model takes are refused, or lose their end or their start.
Truncate = Literal["refuse", "end", "start"]


@dataclass(frozen=True, kw_only=True)
class ReadTexts:
    texts: list[TokenText]
    counts: TextCounts


def as_texts(texts: Text | Iterable[Text]) -> list[Text]:
    """Returns the texts as a list: all strings, or all lists of token ids; a single one is a list
    of one. Raises RequestError for anything else and for none."""
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise _no_text(texts)
    listed: list[Any] = list(texts)
    if not listed:
        raise RequestError("there are no texts", seen="an empty list", remedy="Give at least one.")
    if type(listed[0]) is int:
        return [listed]
    are_strings = isinstance(listed[0], str)
    for one in listed:
        is_list = isinstance(one, Iterable) and not isinstance(one, str | bytes)
        if isinstance(one, str) is not are_strings or not (are_strings or is_list):
            raise _no_text(one)
    return listed


def check_truncate(truncate: Truncate) -> None:
    """Raises ParameterError for an unknown way."""
    if truncate not in get_args(Truncate):
        raise ParameterError(
            "truncate",
            seen=quoted(truncate, MAX_SEEN_CHARS),
            remedy=f"Use one of {', '.join(get_args(Truncate))}.",
        )


def read_texts(
    model: EncoderModel,
    texts: Sequence[Text],
    *,
    prompt: str = "",
    truncate: Truncate = "refuse",
    max_tokens: int | None = None,
) -> ReadTexts:
    """Returns the tokens of the texts, at most `max_tokens` of each (None: what the model takes).
    Texts get the tokens that the tokenizer puts around them; lists of token ids are taken as they
    are. Raises RequestError, which tells the text's number, for what the model cannot read."""
    check_truncate(truncate)
    most = model.settings.max_tokens if max_tokens is None else max_tokens
    found, cut = list[TokenText](), list[int]()
    for number, text in enumerate(texts):
        with naming_text(number, len(texts)):
            token_ids = _read(model, text, prompt, truncate, most)
        if len(token_ids) > most:
            cut.append(number)
            token_ids = _cut(model, text, token_ids, truncate, most)
        found.append(TokenText(token_ids=token_ids))
    return ReadTexts(
        texts=found,
        counts=TextCounts(num_tokens=tuple(len(text.token_ids) for text in found), cut=tuple(cut)),
    )


def encode_text(model: EncoderModel, text: str) -> list[int]:
    """Returns the tokens of a text alone."""
    return model.tokenizer.encode(text.lower() if model.settings.lowercases else text)


def too_long(num_tokens: int, most: int) -> RequestError:
    """Returns the error for a text that would have to be cut."""
    return RequestError(
        "the text is longer than the model takes",
        seen=f"{num_tokens} tokens, at most {most}",
        remedy='Send a shorter text, or have it cut with truncate "end".',
    )


@contextmanager
def naming_text(number: int, num_texts: int) -> Iterator[None]:
    """Names a text's number in errors about it, where there are several."""
    try:
        yield
    except RequestError as error:
        if num_texts == 1:
            raise
        raise RequestError(
            f"text {number}: {error.what}", seen=error.seen, remedy=error.remedy
        ) from error


def _read(model: EncoderModel, text: Text, prompt: str, truncate: Truncate, most: int) -> list[int]:
    tokenizer = model.tokenizer
    if isinstance(text, str):
        if truncate == "refuse":
            check_length(tokenizer, text, most)
        around = tokenizer.prompt_prefix, tokenizer.prompt_suffix
        text = [*around[0], *encode_text(model, prompt + text), *around[1]]
    token_ids = as_token_ids(text, model.spec.vocab_size)
    if not token_ids:
        raise RequestError(
            "the text has no tokens", seen=quoted(text), remedy="Leave empty texts out."
        )
    if len(token_ids) > most and truncate == "refuse":
        raise too_long(len(token_ids), most)
    return token_ids


def _cut(
    model: EncoderModel, text: Text, token_ids: list[int], truncate: Truncate, most: int
) -> list[int]:
    """Cuts the text itself and keeps what the tokenizer puts around it."""
    num_before = num_after = 0
    if isinstance(text, str):
        num_before = len(model.tokenizer.prompt_prefix)
        num_after = len(model.tokenizer.prompt_suffix)
    own = token_ids[num_before : len(token_ids) - num_after]
    num_kept = most - num_before - num_after
    own = own[:num_kept] if truncate == "end" else own[len(own) - num_kept :]
    return [*token_ids[:num_before], *own, *token_ids[len(token_ids) - num_after :]]


def _no_text(seen: object) -> RequestError:
    return RequestError(
        "texts are strings or lists of token ids",
        seen=quoted(seen, MAX_SEEN_CHARS),
        remedy="Give one, or a list of them that are all of one kind.",
    )

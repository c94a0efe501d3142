"""Echo: a prompt as the beginning of its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paredown.engine.detokenize import TokenDecoder, make_detokenizer
from paredown.engine.placed_tokens import PlacedToken, TokenPlacer, own_text


class NamingDecoder(TokenDecoder, Protocol):
    """A tokenizer that also says how its vocabulary writes a token."""

    def token_string(self, token_id: int, /) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """`places` are those of the prompt's tokens, in order; empty unless they are told."""

    text: str
    places: Sequence[PlacedToken] = ()


def echo(
    tokenizer: NamingDecoder, text: str | None, token_ids: list[int], *, places_tokens: bool
) -> Echo:
    """Returns the echo of a prompt. Without its `text` that is what its tokens decode to."""
    places = placed_prompt(tokenizer, token_ids, is_text=text is not None) if places_tokens else ()
    return Echo(text=prompt_text(tokenizer, token_ids) if text is None else text, places=places)


def placed_prompt(
    tokenizer: NamingDecoder, token_ids: list[int], *, is_text: bool
) -> list[PlacedToken]:
    """Returns the text and position of each token. Control tokens that a text holds are written
    out in it, but for those that stand before every text."""
    num_before = len(getattr(tokenizer, "prompt_prefix", ())) if is_text else 0
    placer, num_written, placed = TokenPlacer(tokenizer, []), 0, list[PlacedToken]()
    for index, token_id in enumerate(token_ids):
        one, written = placer.place(token_id), ""
        if index >= num_before:
            written = _written_out(tokenizer, token_id)
        placed.append(PlacedToken(written or one.text, one.start + num_written))
        num_written += len(written)
    return placed


def prompt_text(tokenizer: NamingDecoder, token_ids: list[int]) -> str:
    """Returns the text of a prompt that was given as token ids, control tokens written out."""
    detokenizer, parts = make_detokenizer(tokenizer, []), list[str]()
    for token_id in token_ids:
        parts.append(detokenizer.push(token_id))
        parts.append(_written_out(tokenizer, token_id))
    return "".join([*parts, detokenizer.flush()])


def _written_out(tokenizer: NamingDecoder, token_id: int) -> str:
    """Returns a control token as it is written; "" for tokens that have a text of their own."""
    if own_text(tokenizer, token_id) != "":
        return ""
    return tokenizer.token_string(token_id) or ""

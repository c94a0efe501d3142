"""Gives the text and position of each token in an answer. A token decoded alone may lose its space,
and one that cuts a character has bytes but no text."""

from dataclasses import dataclass

from paredown.engine.detokenize import TokenDecoder, make_detokenizer
from paredown.engine.piece_detokenizer import REPLACEMENT
from paredown.models.text.token_texts import TokenTexts


def own_text(tokenizer: TokenDecoder, token_id: int) -> str | bytes:
    """Returns a token's share of a text that has begun: its text, or its bytes if they are not
    whole characters. Special tokens return ""."""
    texts: TokenTexts | None = getattr(tokenizer, "token_texts", None)
    if texts is not None:
        own = texts.of(token_id)
        return as_text(own) if isinstance(own, bytes) else own
    alone = tokenizer.decode([token_id])
    twice = tokenizer.decode([token_id, token_id])
    return twice.removeprefix(alone) if twice.startswith(alone) else alone


def as_text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


@dataclass(frozen=True, slots=True)
class PlacedToken:
    """A token's place in the answer. `text` is that of `own_text` without a space that decoding
    drops at the beginning. `start` counts the characters before it, or before the character that it
    continues."""

    text: str | bytes
    start: int


class TokenPlacer:
    """Places the tokens of one answer in order."""

    def __init__(self, tokenizer: TokenDecoder, prompt_token_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = make_detokenizer(tokenizer, prompt_token_ids)
        self._num_chars = 0
        # Whether the text of the last token is still to come.
        self._is_late = False

    def place(self, token_id: int) -> PlacedToken:
        """Returns the next token's text and place."""
        own, start = own_text(self._tokenizer, token_id), self._num_chars
        num_cut = self._detokenizer.num_cut_chars
        added = self._detokenizer.push(token_id)
        self._num_chars += len(added)
        is_late, self._is_late = self._is_late, bool(own and not added)
        if isinstance(own, str):
            if not is_late and REPLACEMENT not in added:
                # At the beginning of a text this may be less than its own text.
                return PlacedToken(own if own.strip() and not added else added, start)
            if added.endswith(own):
                return PlacedToken(own, self._num_chars - len(own))
            own = own.encode()
        # The token continues the cut character, unless that turns out to be none.
        is_broken = num_cut and added.startswith(REPLACEMENT)
        return PlacedToken(own, start + num_cut if is_broken else start)

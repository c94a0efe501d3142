"""Turns tokens into text incrementally: only whole characters, and nothing past a stop string."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from paredown.engine.piece_detokenizer import (
    REPLACEMENT,
    ByteLevelDetokenizer,
    SentencePieceDetokenizer,
)
from paredown.models.text.clean_up import TextCleaner
from paredown.models.text.token_texts import TokenTexts

# Enough of the prompt to keep the word boundary before the answer. A SentencePiece tokenizer drops
# the space before the first word that it decodes.
NUM_CONTEXT_TOKENS = 4
# No character spans this many tokens, so most of what still seems cut is no character.
MAX_HELD_TOKENS = 16


class TokenDecoder(Protocol):
    def decode(self, token_ids: list[int], /) -> str: ...


@runtime_checkable
class CleaningDecoder(Protocol):
    """A tokenizer whose `decode` drops spaces before punctuation."""

    def decode_uncleaned(self, token_ids: list[int], /) -> str: ...


class Detokenizer(Protocol):
    """Decodes a growing token sequence."""

    @property
    def num_cut_chars(self) -> int:
        """Returns how many held-back characters would come out as U+FFFD."""
        ...

    def push(self, token_id: int) -> str:
        """Returns the text that `token_id` completes; it is empty inside a character."""
        ...

    def flush(self) -> str:
        """Returns the text that was held back, with a cut character as U+FFFD. Call it once, at the
        end."""
        ...


def prepare_texts(tokenizer: TokenDecoder, vocab_size: int) -> None:
    """Fills the tokenizer's table, if it has one, so that no step of an engine does it. Meant for
    long-running servers: it takes 2 us per token, 0.3 s for the largest vocabularies."""
    texts: TokenTexts | None = getattr(tokenizer, "token_texts", None)
    if texts is not None:
        texts.cover(vocab_size)
    # The same for the longest token, which is computed on first use.
    getattr(tokenizer, "max_token_bytes", None)


def make_detokenizer(tokenizer: TokenDecoder, prompt_token_ids: list[int]) -> Detokenizer:
    """Returns a detokenizer for the answer to a prompt; it uses the tokenizer's table where there
    is one."""
    # A check against the protocol would take longer than everything else here.
    texts: TokenTexts | None = getattr(tokenizer, "token_texts", None)
    if getattr(tokenizer, "cleans_up", False):
        assert isinstance(tokenizer, CleaningDecoder)
        return CleaningDetokenizer(tokenizer, prompt_token_ids)
    if texts is None:
        return DecodingDetokenizer(tokenizer, prompt_token_ids)
    if texts.is_byte_level:
        return ByteLevelDetokenizer(texts)
    return SentencePieceDetokenizer(texts, prompt_token_ids[-NUM_CONTEXT_TOKENS:])


class DecodingDetokenizer:
    """Works with any tokenizer. The deltas concatenate to the decoded whole.

    Text is released at token borders where the decoded text does not end in U+FFFD, that is, where
    no character is cut. Of many bytes that form no character, all but a possible cut is released.
    Decoding restarts at the last such border but one, so the cost per token does not grow with the
    sequence.
    """

    def __init__(self, decoder: TokenDecoder, prompt_token_ids: list[int]) -> None:
        self._decode = decoder.decode
        context = prompt_token_ids[-NUM_CONTEXT_TOKENS:]
        self._known_text = self._decode(context) if context else ""
        if self._known_text.endswith(REPLACEMENT):
            context, self._known_text = [], ""
        # `_token_ids[:_num_known]` decodes to `_known_text`; both were released before.
        self._token_ids = context
        self._num_known = len(context)

    @property
    def num_cut_chars(self) -> int:
        return self._decode(self._token_ids[self._num_known :]).count(REPLACEMENT)

    def push(self, token_id: int) -> str:
        self._token_ids.append(token_id)
        text = self._decode(self._token_ids)
        if len(text) > len(self._known_text):
            is_cut = text.endswith(REPLACEMENT)
            num_held = len(self._token_ids) - self._num_known
            if not is_cut:
                return self._release(text, len(self._token_ids))
            return "" if num_held < MAX_HELD_TOKENS else self._release_but_the_last(text)
        # At the beginning of a text a space may decode to nothing; a token that is nothing even
        # twice never counts.
        if text == self._known_text and not self._decode([token_id, token_id]):
            self._token_ids.pop()
        return ""

    def flush(self) -> str:
        if self._num_known == len(self._token_ids):
            return ""
        return self._release(self._decode(self._token_ids), len(self._token_ids))

    def _release_but_the_last(self, text: str) -> str:
        """Releases text up to the last border that is followed by a character, which the next
        tokens may still complete."""
        for num_tokens in range(len(self._token_ids) - 1, self._num_known, -1):
            head = self._decode(self._token_ids[:num_tokens])
            last = self._decode(self._token_ids[num_tokens:])
            if last and head + last == text:
                return self._release(head, num_tokens)
        return self._release(text, len(self._token_ids))

    def _release(self, text: str, num_tokens: int) -> str:
        """Releases `text`, which decodes the first `num_tokens` tokens."""
        delta = text[len(self._known_text) :]
        del self._token_ids[: self._num_known]
        self._num_known = num_tokens - self._num_known
        self._known_text = self._decode(self._token_ids[: self._num_known])
        return delta


class Uncleaned:
    """Decodes like the tokenizer, but without dropping spaces."""

    def __init__(self, decoder: CleaningDecoder) -> None:
        self.decode = decoder.decode_uncleaned


class CleaningDetokenizer:
    """Serves a tokenizer that drops spaces before punctuation. It holds back the last word."""

    def __init__(self, decoder: CleaningDecoder, prompt_token_ids: list[int]) -> None:
        self._words = DecodingDetokenizer(Uncleaned(decoder), prompt_token_ids)
        self._cleaner = TextCleaner()

    @property
    def num_cut_chars(self) -> int:
        return self._words.num_cut_chars

    def push(self, token_id: int) -> str:
        return self._cleaner.push(self._words.push(token_id))

    def flush(self) -> str:
        return self._cleaner.push(self._words.flush()) + self._cleaner.flush()


class StopMatcher:
    """Finds the first stop string that a text completes, however the text is cut into pieces.

    The first stop string is the one that ends first; of several that end together, the longest.
    Text that may yet begin a stop string is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._max_held = max(map(len, stops), default=1) - 1
        self._held = ""
        # The stop string that was found.
        self.found: str | None = None

    @property
    def is_stopped(self) -> bool:
        return self.found is not None

    def push(self, text: str) -> str:
        """Returns the part of the text that certainly precedes any stop string."""
        if not self._stops or self.is_stopped:
            return "" if self.is_stopped else text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            end, start = min(found)
            self.found, self._held = text[start:end], ""
            return text[:start]
        num_held = self._num_to_hold(text)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def flush(self) -> str:
        """Returns the text that was held back, because it ended without a complete stop string."""
        held, self._held = self._held, ""
        return held

    def _num_to_hold(self, text: str) -> int:
        for start in range(max(0, len(text) - self._max_held), len(text)):
            tail = text[start:]
            if any(stop.startswith(tail) for stop in self._stops):
                return len(tail)
        return 0

"""Decodes tokens that have a text of their own (models/text/token_texts.py). A token costs one
table lookup, or more if it cuts a character."""

import codecs

from paredown.models.text.token_texts import TokenTexts

REPLACEMENT = "\ufffd"
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class ByteLevelDetokenizer:
    """The deltas concatenate to the decoded whole. Only a cut character is held back."""

    __slots__ = ("_texts", "_utf8")

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        # Set while inside a character.
        self._utf8: codecs.IncrementalDecoder | None = None

    @property
    def num_cut_chars(self) -> int:
        """Returns how many U+FFFD the held-back bytes become if they never form a character."""
        return 0 if self._utf8 is None else 1

    def push(self, token_id: int) -> str:
        texts = self._texts
        piece = texts[token_id] if token_id < len(texts) else None
        if piece is None:
            piece = texts.of(token_id)
        if self._utf8 is None and isinstance(piece, str):
            return piece
        if self._utf8 is None:
            self._utf8 = _Utf8Decoder("replace")
        text = self._utf8.decode(piece.encode() if isinstance(piece, str) else piece)
        if not self._utf8.getstate()[0]:
            self._utf8 = None
        return text

    def flush(self) -> str:
        return "" if self._utf8 is None else self._utf8.decode(b"", final=True)


class SentencePieceDetokenizer:
    """The deltas concatenate to the decoded whole, with one exception: a run of byte tokens whose
    bytes first form characters and later do not. Decoding turns the whole run into U+FFFD, but
    released text stays.

    `context` holds the last tokens of the prompt. If they have no text, the answer begins the text
    and loses its first space, as in decoding.
    """

    __slots__ = ("_cut", "_is_bad", "_is_plain", "_num_to_strip", "_texts")

    def __init__(self, texts: TokenTexts, context: list[int]) -> None:
        self._texts = texts
        self._cut = b""
        # Whether the current run of byte tokens holds bytes that form no character.
        self._is_bad = False
        self._num_to_strip = 0 if any(texts.of(one) for one in context) else texts.max_stripped
        # True between two pieces when nothing needs stripping.
        self._is_plain = not self._num_to_strip

    @property
    def num_cut_chars(self) -> int:
        """Returns how many U+FFFD the held-back bytes become if they never form a character."""
        return len(self._cut)

    def push(self, token_id: int) -> str:
        texts = self._texts
        piece = texts[token_id] if token_id < len(texts) else None
        if piece is None:
            piece = texts.of(token_id)
        if self._is_plain and isinstance(piece, str):
            return piece
        text = self._strip(self._join(piece))
        self._is_plain = not (self._cut or self._is_bad or self._num_to_strip)
        return text

    def flush(self) -> str:
        return REPLACEMENT * len(self._cut)

    def _join(self, piece: str | bytes) -> str:
        if not piece:  # decoding skips it, even inside a character
            return ""
        if isinstance(piece, str):
            text, self._cut, self._is_bad = REPLACEMENT * len(self._cut) + piece, b"", False
            return text
        if self._is_bad:
            return REPLACEMENT
        data = self._cut + piece
        try:
            text, self._cut = data.decode(), b""
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                self._cut = data
                return ""
            text, self._cut, self._is_bad = REPLACEMENT * len(data), b"", True
        return text

    def _strip(self, text: str) -> str:
        if not self._num_to_strip or not text:
            return text
        num_spaces = len(text) - len(text.lstrip(" "))
        num_stripped = min(num_spaces, self._num_to_strip)
        self._num_to_strip -= num_stripped
        if num_spaces < len(text):
            self._num_to_strip = 0
        return text[num_stripped:]

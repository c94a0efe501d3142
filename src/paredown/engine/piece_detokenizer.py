"""From tokens to text where each token has a text of its own (models/text/token_texts.py): a token
costs one look into a table, and only one that cuts a character more."""

import codecs

from paredown.models.text.token_texts import TokenTexts

REPLACEMENT = "\ufffd"
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class ByteLevelDetokenizer:
    """Concatenated deltas are the decoded whole. Held back is only a character that is cut."""

    __slots__ = ("_texts", "_utf8")

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        # Inside a character.
        self._utf8: codecs.IncrementalDecoder | None = None

    @property
    def num_cut_chars(self) -> int:
        """How many U+FFFD stand for what is held back, should it be no character."""
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
    """Concatenated deltas are the decoded whole, unless bytes that make no character follow, in one
    run of byte tokens, bytes that do: decoding makes all of that run U+FFFD, and here what has been
    told stays told.

    `context` are the last tokens of the prompt. Where they have no text, the answer begins the text
    and loses its first space, as decoding does.
    """

    __slots__ = ("_cut", "_is_bad", "_is_plain", "_num_to_strip", "_texts")

    def __init__(self, texts: TokenTexts, context: list[int]) -> None:
        self._texts = texts
        self._cut = b""
        # Whether the run of byte tokens under way holds bytes that make no character.
        self._is_bad = False
        self._num_to_strip = 0 if any(texts.of(one) for one in context) else texts.max_stripped
        # Between two pieces, nothing to be stripped.
        self._is_plain = not self._num_to_strip

    @property
    def num_cut_chars(self) -> int:
        """How many U+FFFD stand for what is held back, should it be no character."""
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

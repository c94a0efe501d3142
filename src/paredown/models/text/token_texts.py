"""TokenTexts: what each token adds to a text, so that a growing answer needs no decoding of the
tokens before.

Two kinds of decoders say so token by token, and these are the ones of nearly all models:
"ByteLevel" (GPT-2 and later BPE: a token is bytes, in an alphabet of 256 letters), and that of
SentencePiece models (a token is text with a mark for spaces, or one byte). For others there is no
table.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from paredown.errors import CheckpointError

# A reply may hold a token hundreds of times. The longest known has 512 characters.
MAX_TOKEN_CHARS = 4_096
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# How "ByteLevel" writes bytes: printable ones as they are, the others in order from U+0100 on.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_OF_LETTER = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + i): byte for i, byte in enumerate(_OTHERS)
}


class Vocabulary(Protocol):
    """What the table reads of a tokenizer's library."""

    def id_to_token(self, id: int, /) -> str | None: ...


class TokenTexts(list[str | bytes | None]):
    """The text of a token, or its bytes where these are not whole characters (SentencePiece: of
    every token that is a byte). "" for special tokens, which decoding skips, and for ids without a
    token. None where nobody has asked for it yet: ask `of`.

    `max_stripped` spaces are dropped where a text begins. `is_byte_level` tells the kinds apart:
    bytes that make no character become U+FFFD, there as Unicode's "maximal subparts", in
    SentencePiece one for each byte.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        special: frozenset[str],
        decoder: "PieceDecoder",
    ) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._special = special
        self._decoder = decoder
        self.is_byte_level = decoder.space_mark is None
        self.max_stripped = decoder.max_stripped

    def cover(self, num_tokens: int) -> None:
        """Makes the texts of the first ids. One that is made between two steps of the model costs
        3 to 6 us, as much as all else that a step does for a token."""
        for token_id in range(num_tokens):
            self.of(token_id)

    def of(self, token_id: int) -> str | bytes:
        """The text of any token, made where it is not there. Raises CheckpointError for one that is
        too long."""
        if token_id >= len(self):
            self.extend([None] * (token_id + 1 - len(self)))
        text = self[token_id]
        if text is None:
            piece = self._vocabulary.id_to_token(token_id)
            if piece is not None and len(piece) > MAX_TOKEN_CHARS:
                raise CheckpointError(
                    f"token {token_id} of the tokenizer is longer than that of any tokenizer",
                    seen=f"{len(piece):,} characters, at most {MAX_TOKEN_CHARS:,}",
                    remedy="Take the tokenizer of the model's own publisher.",
                )
            text = "" if piece is None or piece in self._special else self._decoder.decode(piece)
            self[token_id] = text
        return text


@dataclass(frozen=True, kw_only=True)
class PieceDecoder:
    """`space_mark` stands for a space in the pieces of SentencePiece; None is "ByteLevel"."""

    space_mark: str | None = None
    max_stripped: int = 0

    def decode(self, piece: str) -> str | bytes:
        if self.space_mark is not None:
            text = piece.replace(self.space_mark, " ")
            found = _BYTE_TOKEN.fullmatch(text)
            return text if found is None else bytes([int(found[1], 16)])
        try:
            data = bytes(BYTE_OF_LETTER[letter] for letter in piece)
        except KeyError:  # an added token, written as it is
            return piece
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data


def piece_decoder(decoder: object) -> PieceDecoder | None:
    """From a decoder as tokenizer.json has it; None for other kinds."""
    if not isinstance(decoder, dict):
        return None
    if decoder.get("type") == "ByteLevel":
        return PieceDecoder()
    parts = decoder.get("decoders")
    if decoder.get("type") != "Sequence" or not isinstance(parts, list):
        return None
    match parts:
        case [
            {"type": "Replace", "pattern": {"String": str(mark)}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *rest,
        ]:
            pass
        case _:
            return None
    match rest:
        case []:
            return PieceDecoder(space_mark=mark)
        case [{"type": "Strip", "content": " ", "start": int(start), "stop": 0}]:
            return PieceDecoder(space_mark=mark, max_stripped=start)
    return None

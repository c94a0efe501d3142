"""TokenTexts: the text that each token adds, so that a growing answer never decodes earlier tokens
again.

The table exists for the two kinds of decoders that nearly all models use. In "ByteLevel" (GPT-2 and
later BPE) a token is bytes in an alphabet of 256 letters; in SentencePiece models it is text with a
mark for spaces, or one byte.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from paredown.errors import CheckpointError

# Bounds a reply, which may repeat a token hundreds of times. The longest known has 512 characters.
MAX_TOKEN_CHARS = 4_096
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# "ByteLevel" writes printable bytes as they are, and the others in order from U+0100 on.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_OF_LETTER = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + i): byte for i, byte in enumerate(_OTHERS)
}


class Vocabulary(Protocol):
    """The part of a tokenizer's library that the table reads."""

    def id_to_token(self, id: int, /) -> str | None: ...


class TokenTexts(list[str | bytes | None]):
    """The text of each token, or its bytes if they are not whole characters (in SentencePiece, for
    every byte token). It is "" for special tokens, which decoding skips, and for ids without a
    token. An entry is None until `of` is called for it.

    Decoding strips up to `max_stripped` spaces at the beginning of a text. `is_byte_level` tells
    the two kinds apart. Bytes that form no character become U+FFFD: once per "maximal subpart" of
    Unicode in byte-level BPE, once per byte in SentencePiece.
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
        """Computes the texts of the first ids ahead of time. Computing one between two steps costs
        3 to 6 us, as much as all other work on a token."""
        for token_id in range(num_tokens):
            self.of(token_id)

    def show(self, tokens: Mapping[int, str]) -> None:
        """Gives special tokens, by id, their own text from here on."""
        self._special -= frozenset(tokens.values())
        for token_id in tokens:
            if token_id < len(self):
                self[token_id] = None

    def of(self, token_id: int) -> str | bytes:
        """Returns the text of any token, computing it if needed. Raises CheckpointError for one
        that is too long."""
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
    """Decodes single tokens. `space_mark` is SentencePiece's mark for a space; None means
    "ByteLevel"."""

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
    """Returns the decoder for a tokenizer.json's `decoder`; None for other kinds."""
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

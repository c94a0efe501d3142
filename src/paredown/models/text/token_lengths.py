"""Bounds how many bytes of text one token can stand for. A longer text then needs at least so many
tokens, which is known before it is tokenized.

The bound is None where a tokenizer may drop text or fold any length into one token. Examples are
normalizers that strip, pre-tokenizers that remove spaces, unknown characters that are fused or
skipped, and added tokens that take spaces beside them.
"""

from paredown.models.text.token_texts import BYTE_OF_LETTER, TokenTexts
from paredown.models.text.tokenizer_library import TokenizerLibrary

# The largest factor by which a normal form shortens a text, in bytes of UTF-8. NFKC turns a bold
# mathematical letter of four bytes into a plain one; no sequence of characters loses more.
_SHORTENED = {"NFC": 4, "NFD": 4, "NFKC": 4, "NFKD": 4, "Lowercase": 4}
_KEEPING_PRE_TOKENIZERS = frozenset({"ByteLevel", "Digits", "Metaspace"})


def max_token_bytes(library: TokenizerLibrary, texts: TokenTexts | None) -> int | None:
    """Returns the most UTF-8 bytes that one token stands for. `texts` is the table of token texts,
    None where there is none."""
    if texts is None or not _knows_every_byte(library, texts):
        return None
    factor = _normalizer_factor(library.normalizer_description)
    if factor is None or not _keeps_all(library.pre_tokenizer_description):
        return None
    added = library.added_tokens.values()
    if any(token.lstrip or token.rstrip for token in added):
        return None
    texts.cover(library.vocab_size)
    longest = max((len(_as_bytes(text)) for text in texts if text is not None), default=0)
    return max([longest * factor, *(len(token.content.encode()) * factor for token in added)])


def _as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _knows_every_byte(library: TokenizerLibrary, texts: TokenTexts) -> bool:
    """Returns whether any text has tokens of its own, without unknown parts."""
    if library.model_kind != "BPE":
        return False
    if texts.is_byte_level:
        names = list(BYTE_OF_LETTER)
    elif library.has_byte_fallback:
        names = [f"<0x{byte:02X}>" for byte in range(256)]
    else:
        return False
    return all(library.token_to_id(name) is not None for name in names)


def _normalizer_factor(state: object) -> int | None:
    """Returns the largest factor by which it shortens a text; None where no bound is known."""
    if state is None:
        return 1
    match state:
        case {"type": "Sequence", "normalizers": [*parts]}:
            factor = 1
            for part in parts:
                if (own := _normalizer_factor(part)) is None:
                    return None
                factor *= own
            return factor
        case {"type": "Prepend"}:
            return 1
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            if not old or not new:
                return None
            return -(-len(old.encode()) // len(new.encode()))
        case {"type": str(kind)}:
            return _SHORTENED.get(kind)
    return None


def _keeps_all(state: object) -> bool:
    if state is None:
        return True
    match state:
        case {"type": "Sequence", "pretokenizers": [*parts]}:
            return all(map(_keeps_all, parts))
        case {"type": "Punctuation" | "Split", "behavior": str(behavior)}:
            return behavior != "Removed"
        case {"type": str(kind)}:
            return kind in _KEEPING_PRE_TOKENIZERS
    return False

"""Bounds the cost of a tokenizer.json's parts: how long a text they make, and whether their time is
linear in the text.

Parts of known kinds run in this process. Others run in one that can be stopped
(models/text/tokenizer_library.py).
"""

import base64
import binascii
import json
import re
import struct
from collections.abc import Iterator, Mapping

from paredown.errors import CheckpointError
from paredown.models.text.linear_pattern import is_linear
from paredown.units import MEGA, format_bytes

# The largest known file has 35 MB.
MAX_FILE_BYTES = 96 * MEGA
# The largest growth of a text in this process, and anywhere. SentencePiece's space has 3 bytes.
MAX_GROWTH_HERE = 4.0
MAX_GROWTH = 64.0
MAX_STEPS = 32
# Splitting a longer word takes time that grows with its cube.
MAX_WORD_CHARS = 128
# The limit of unigram models, which try every token at each character.
MAX_UNIGRAM_CHARS = 64
# Of what marks the beginning or the end of a word: "##", "</w>".
MAX_MARK_CHARS = 64
_NAMES = ("normalizer", "pre_tokenizer")
_CHILDREN = {"normalizers", "pretokenizers", "decoders"}
_NORMALIZERS = frozenset(
    {
        "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Nmt",
        "BertNormalizer", "ByteLevel", "Prepend", "Precompiled", "Replace",
    }
)  # fmt: skip
_PRE_TOKENIZERS = frozenset(
    {
        "BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Punctuation", "Whitespace",
        "WhitespaceSplit", "UnicodeScripts", "CharDelimiterSplit", "FixedLength", "Split",
    }
)  # fmt: skip
_DECODERS = frozenset(
    {
        "ByteLevel", "WordPiece", "Metaspace", "BPEDecoder", "CTC", "Fuse", "Strip",
        "ByteFallback", "Replace",
    }
)  # fmt: skip
# NFKC makes up to 33 bytes of one character.
_MAX_MAPPED_BYTES = 64
_MAX_PREPENDED_CHARS = 16
# A usual map of characters has 0.4 MB.
_MAX_PART_BYTES = 8 * MEGA
# Escapes of lower-case letters, which would hide a name.
_ESCAPED_LETTERS = (b"\\u006", b"\\u007")
# Most parts are shorter than this.
_USUAL_PART_BYTES = 4096
_VALUE = re.compile(rb"\s*:\s*\{")
Part = Mapping[str, object]


def check_before_load(data: bytes, where: str) -> None:
    """Raises CheckpointError for a file that would be too costly to load, or whose loading would
    fail without a clear error. The library normalizes added tokens when it loads the file."""
    if len(data) > MAX_FILE_BYTES:
        raise _wrong(where, f"{format_bytes(len(data))}, more than {format_bytes(MAX_FILE_BYTES)}")
    for found in _descriptions(data, where):
        for part in _parts(found):
            _check_part(part, where)
        growth = growth_of(found)
        if growth > MAX_GROWTH:
            raise _wrong(where, f"a normalizer that may make a text {growth:.3g} times as long")


def is_linear_normalizer(description: object) -> bool:
    """Returns whether the normalizer takes linear time and little memory."""
    return _is_linear(description, _NORMALIZERS) and growth_of(description) <= MAX_GROWTH_HERE


def is_linear_pre_tokenizer(description: object) -> bool:
    return _is_linear(description, _PRE_TOKENIZERS)


def is_linear_decoder(description: object) -> bool:
    """Whether it takes a linear time and little memory, and cannot panic."""
    parts = _parts(description)
    # It panics where it takes letters off the end of a token that has fewer.
    strips_ends = any(part.get("type") == "Strip" and part.get("stop") for part in parts)
    return (
        not strips_ends
        and _is_linear(description, _DECODERS)
        and growth_of(description) <= MAX_GROWTH_HERE
    )


def growth_of(description: object) -> float:
    """Returns the largest factor by which a text may grow."""
    growth = 1.0
    for part in _parts(description):
        match part:
            case {"pattern": {"String": str(old)}, "content": str(new)}:
                growth *= max(1.0, len(new.encode()) / max(1, len(old.encode())))
                growth *= 1 if old else 2
            case {"content": str(new)}:
                growth *= max(1.0, len(new.encode()))
            case {"prepend": str(before)}:
                growth *= 1 if len(before) <= _MAX_PREPENDED_CHARS else len(before)
            case {"precompiled_charsmap": str(charsmap)}:
                longest = _longest_mapped(charsmap)
                growth *= 1 if longest <= _MAX_MAPPED_BYTES else longest
    return growth


def _is_linear(description: object, kinds: frozenset[str]) -> bool:
    parts = list(_parts(description))
    return len(parts) <= MAX_STEPS and all(
        part.get("type") in kinds and _has_linear_pattern(part) for part in parts
    )


def _has_linear_pattern(part: Part) -> bool:
    match part.get("pattern"):
        case {"Regex": str(pattern)}:
            return is_linear(pattern)
        case {"String": str(text)}:
            return bool(text)
    return part.get("type") not in ("Replace", "Split")


def _parts(description: object) -> Iterator[Part]:
    """Yields the steps of a description, with sequences flattened. Older files name no types."""
    if not isinstance(description, dict):
        return
    children = [description[name] for name in _CHILDREN if name in description]
    if not children:
        yield description
    for child in children:
        for part in child if isinstance(child, list) else [child]:
            yield from _parts(part)


def _check_part(part: Part, where: str) -> None:
    """Raises CheckpointError for values at which the library panics."""
    match part:
        case {"type": "FixedLength", "length": 0}:
            raise _wrong(where, "FixedLength with length 0")
        case {"type": "Prepend", "prepend": ""}:
            raise _wrong(where, "Prepend with nothing to put before a text")
        case {"type": "Precompiled", "precompiled_charsmap": str(charsmap)}:
            if _longest_mapped(charsmap) < 0:
                raise _wrong(where, "a Precompiled normalizer whose map cannot be read")


def _longest_mapped(charsmap: str) -> int:
    """Returns the bytes of the longest replacement for a character, or -1 if this is no valid map.

    A map is the size of a trie, the trie in 4-byte words, and zero-terminated texts.
    """
    try:
        data = base64.b64decode(charsmap, validate=True)
    except (binascii.Error, ValueError):
        return -1
    if len(data) < 4:
        return -1
    (size,) = struct.unpack_from("<I", data)
    if size % 4 or not 4 <= size <= len(data) - 4:
        return -1
    return max(map(len, data[4 + size :].split(b"\0")))


def _descriptions(data: bytes, where: str) -> Iterator[object]:
    """Yields every object that is named as a normalizer or pre-tokenizer, at any depth. Where the
    names can be found directly, the file is not parsed, which would take a quarter of the time to
    load it."""
    try:
        if any(letter in data for letter in _ESCAPED_LETTERS):
            whole = json.loads(data)
            if isinstance(whole, dict):
                yield from (whole.get(name) for name in _NAMES)
            return
        for name in _NAMES:
            for place in _places(data, f'"{name}"'.encode(), where):
                yield _object_at(data, place)
    except (ValueError, RecursionError) as error:
        raise _wrong(where, str(error)) from error


def _object_at(data: bytes, place: int) -> object:
    """Parses the object at that offset. Raises ValueError or RecursionError."""
    for size in (_USUAL_PART_BYTES, _MAX_PART_BYTES):
        text = data[place : place + size].decode(errors="replace")
        try:
            return json.JSONDecoder().raw_decode(text)[0]
        except ValueError:
            if size == _MAX_PART_BYTES:
                raise
    raise AssertionError("the last size returns or raises")


def _places(data: bytes, name: bytes, where: str) -> list[int]:
    """Returns the offsets of the objects under that name."""
    places, at = list[int](), data.find(name)
    while at >= 0:
        at += len(name)
        if found := _VALUE.match(data, at):
            places.append(found.end() - 1)
        at = data.find(name, at)
    if len(places) > MAX_STEPS:
        raise _wrong(where, f"{len(places)} objects of the name {name.decode()}")
    return places


def _wrong(where: str, seen: str) -> CheckpointError:
    return CheckpointError(
        f"{where} is no tokenizer that can be read safely",
        seen=seen,
        remedy="Take the tokenizer of the model's own publisher.",
    )

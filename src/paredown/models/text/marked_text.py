"""Encodes a text in which some characters stand for control tokens that are only text.

The other control tokens divide the text into parts, as the library does it. A part that holds such
a character is encoded once more, with the token's letters and with no control token recognised.
"""

from collections.abc import Iterator, Mapping

import tokenizers

# Characters that Unicode gives no meaning. One that a part does not hold is put before it, as a
# token, so that the library treats it as a part in the middle.
_BEFORE = tuple(map(chr, range(0xFDD0, 0xFDF0)))


class MarkedText:
    """Encodes with a loaded library, and with others that share its vocabulary and know none of
    its added tokens."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self._library = library
        self._plain = _without_added_tokens(library)
        self._added = frozenset(library.get_added_tokens_decoder())

    def encode(self, text: str, letters: Mapping[str, str]) -> list[int]:
        """Returns the ids of `text`, in which each key of `letters`, a character, stands for its
        value."""
        whole = self._library.encode(text, add_special_tokens=False)
        ids: list[int] = []
        for part, of_part, is_first in self._parts(text, whole.ids, whole.offsets):
            if any(letter in part for letter in letters):
                ids += self._encode_plain(
                    part.translate({ord(one): text for one, text in letters.items()}), is_first
                )
            else:
                ids += of_part
        return ids

    def _parts(
        self, text: str, ids: list[int], offsets: list[tuple[int, int]]
    ) -> Iterator[tuple[str, list[int], bool]]:
        """Yields the parts between added tokens and those tokens, each with its ids and whether it
        is the first."""
        start, of_part, is_first = 0, list[int](), True
        for token_id, (begin, end) in zip(ids, offsets, strict=True):
            if token_id not in self._added:
                of_part.append(token_id)
                continue
            yield text[start:begin], of_part, is_first
            yield "", [token_id], False
            start, of_part, is_first = end, [], False
        yield text[start:], of_part, is_first

    def _encode_plain(self, text: str, is_first: bool) -> list[int]:
        """Returns the ids of a text without any control token, not even where the vocabulary has
        one among its words: that one is taken apart."""
        ids: list[int] = []
        for token_id, (begin, end) in self._encoded(text, is_first):
            if token_id in self._added and end - begin > 1:
                ids += self._encode_plain(text[begin : begin + 1], is_first and not begin)
                ids += self._encode_plain(text[begin + 1 : end], False)
            else:
                ids.append(token_id)
        return ids

    def _encoded(self, text: str, is_first: bool) -> list[tuple[int, tuple[int, int]]]:
        """Returns the ids of a text and the characters that each is of."""
        before = next((one for one in _BEFORE if one not in text), "")
        if is_first or not before:
            found = self._plain.encode(text, add_special_tokens=False)
            return list(zip(found.ids, found.offsets, strict=True))
        middle = _without_added_tokens(self._library)
        middle.add_special_tokens([before])
        found = middle.encode(before + text, add_special_tokens=False)
        places = [(begin - len(before), end - len(before)) for begin, end in found.offsets]
        return list(zip(found.ids, places, strict=True))[1:]


def _without_added_tokens(library: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    plain = tokenizers.Tokenizer(library.model)
    if library.normalizer is not None:
        plain.normalizer = library.normalizer
    if library.pre_tokenizer is not None:
        plain.pre_tokenizer = library.pre_tokenizer
    return plain

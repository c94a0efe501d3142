"""Spaces that some tokenizers drop before punctuation and English contractions when they decode."""

import re

_PAIRS = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)
# A space before which no match is under way: each begins with a space, and a further one stands in
# it only beside an apostrophe, or is gone by an earlier pair.
_BORDER = re.compile(r"[^ '](?= [^ '])")


def clean_up(text: str) -> str:
    """The text as Transformers' `clean_up_tokenization` gives it."""
    for spaced, joined in _PAIRS:
        text = text.replace(spaced, joined)
    return text


class TextCleaner:
    """Does the same to a text that comes in pieces: what may yet change is held back."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """Gives out what of the text so far is certain."""
        self._held += text
        borders = [found.end() for found in _BORDER.finditer(self._held)]
        end = borders[-1] if borders else 0
        done, self._held = self._held[:end], self._held[end:]
        return clean_up(done)

    def flush(self) -> str:
        """Gives out what was held back, at the end of the text."""
        held, self._held = self._held, ""
        return clean_up(held)

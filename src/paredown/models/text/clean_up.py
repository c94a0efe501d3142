"""Removes the spaces that some tokenizers drop before punctuation and English contractions."""

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
# A space where no match is in progress. Each match begins with a space; another space occurs in it
# only beside an apostrophe, or was removed by an earlier pair.
_BORDER = re.compile(r"[^ '](?= [^ '])")


def clean_up(text: str) -> str:
    """Returns the text as Transformers' `clean_up_tokenization` would."""
    for spaced, joined in _PAIRS:
        text = text.replace(spaced, joined)
    return text


class TextCleaner:
    """Does the same for a text that arrives in pieces, and holds back what may still change."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """Returns the part of the text that is now certain."""
        self._held += text
        borders = [found.end() for found in _BORDER.finditer(self._held)]
        end = borders[-1] if borders else 0
        done, self._held = self._held[:end], self._held[end:]
        return clean_up(done)

    def flush(self) -> str:
        """Returns what was held back, at the end of the text."""
        held, self._held = self._held, ""
        return clean_up(held)

"""Sentences of a file: the short texts that an encoder is measured on and learns from.

Prose has blank lines between its paragraphs and is split into sentences. In a file without blank
lines each line is a text.
"""

import re
from collections.abc import Iterator

# Shorter ones are headings and exclamations.
_LEAST_WORDS = 4
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def sentences(text: str) -> Iterator[str]:
    """Yields the texts, each on one line, without those of a few words."""
    stripped = text.strip()
    if _BLANK_LINES.search(stripped) is None:
        parts = iter(stripped.splitlines())
    else:
        paragraphs = _BLANK_LINES.split(stripped)
        parts = (one for paragraph in paragraphs for one in _SENTENCE_END.split(paragraph))
    for part in parts:
        words = part.split()
        if len(words) >= _LEAST_WORDS:
            yield " ".join(words)

"""ROUGE-L of words (Lin 2004), and the tasks that are unlike all others by it.

F = 2 LCS / (|a| + |b|), with the longest common subsequence of the words of both. Words are those
of the package rouge-score without stemming, in any script; ideographs are words of their own.
"""

import re
from collections import Counter
from collections.abc import Sequence

# Self-Instruct (Wang et al. 2022, section 2.2) keeps a task that is less alike than this.
DEFAULT_LIKENESS = 0.7
_IDEOGRAPHS = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W_{_IDEOGRAPHS}]+")


def words(text: str) -> list[str]:
    """Returns the words in lower case."""
    return _WORD.findall(text.lower())


def rouge_l(one: Sequence[str], other: Sequence[str]) -> float:
    """Returns the F-measure of two lists of words, from 0 to 1."""
    common = _num_common(one, other)
    return 2 * common / (len(one) + len(other)) if common else 0.0


class NovelTasks:
    """Texts of which no two are as alike as `likeness`."""

    def __init__(self, likeness: float = DEFAULT_LIKENESS) -> None:
        self._likeness = likeness
        self._words: list[list[str]] = []
        self._occurrences: list[frozenset[tuple[str, int]]] = []
        self.texts: list[str] = []

    def add(self, text: str) -> bool:
        """Keeps the text if it is unlike all that were kept. Returns whether it is."""
        its_words = words(text)
        occurrences = _occurrences(its_words)
        if any(
            self._may_be_alike(occurrences, other)
            and rouge_l(its_words, self._words[index]) >= self._likeness
            for index, other in enumerate(self._occurrences)
        ):
            return False
        self._words.append(its_words)
        self._occurrences.append(occurrences)
        self.texts.append(text)
        return True

    def _may_be_alike(
        self, one: frozenset[tuple[str, int]], other: frozenset[tuple[str, int]]
    ) -> bool:
        """Whether the words in common, in any order, are enough."""
        return 2 * len(one & other) >= self._likeness * (len(one) + len(other))


def _occurrences(its_words: Sequence[str]) -> frozenset[tuple[str, int]]:
    """Returns each word with its number among its equals: as many as there are words."""
    seen: Counter[str] = Counter()
    found = []
    for word in its_words:
        seen[word] += 1
        found.append((word, seen[word]))
    return frozenset(found)


def _num_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence, by bits of whole rows (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for at, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << at
    all_ones = (1 << len(one)) - 1
    row = all_ones
    for word in other:
        matched = row & places.get(word, 0)
        row = ((row + matched) | (row - matched)) & all_ones
    return len(one) - row.bit_count()

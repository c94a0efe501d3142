"""Diversity of texts: distinct n-grams (Li et al. 2016) and self-BLEU (Zhu et al. 2018)."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paredown.distill.black_box.rouge_l import words

_MAX_N = 4
# Counts of zero become this share, as in method 1 of Chen and Cherry (2014).
_SMOOTHING = 0.1
# Texts that each are compared with all others.
_MAX_COMPARED = 1000

_Gram = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Diversity:
    """`distinct_1` and `distinct_2` are the shares of words and of pairs of words that are there
    for the first time: 1 where none comes again. `self_bleu` is the mean BLEU-4 of each text beside
    all others, from 0 to 1; less is more diverse. None where there are too few texts."""

    distinct_1: float | None
    distinct_2: float | None
    self_bleu: float | None


def diversity(texts: Sequence[str]) -> Diversity:
    """Self-BLEU is that of at most 1,000 texts, which lie evenly among all."""
    lists = [words(text) for text in texts]
    step = max(1, math.ceil(len(lists) / _MAX_COMPARED))
    return Diversity(
        distinct_1=distinct(lists, 1),
        distinct_2=distinct(lists, 2),
        self_bleu=self_bleu(lists[::step]),
    )


def distinct(lists: Sequence[Sequence[str]], n: int) -> float | None:
    """Returns the share of different n-grams among all; None where there is none."""
    grams = [gram for one in lists for gram in _grams(one, n)]
    return len(set(grams)) / len(grams) if grams else None


def self_bleu(lists: Sequence[Sequence[str]]) -> float | None:
    """Returns the mean over the texts that have words; None for less than two of them."""
    lists = [one for one in lists if one]
    if len(lists) < 2:
        return None
    counts = [[Counter(_grams(one, n)) for one in lists] for n in range(1, _MAX_N + 1)]
    most = [_two_highest(each) for each in counts]
    lengths = Counter(len(one) for one in lists)
    scores = []
    for index, one in enumerate(lists):
        logs = 0.0
        for n in range(_MAX_N):
            matched = sum(
                min(count, _most_of_others(most[n][gram], count))
                for gram, count in counts[n][index].items()
            )
            if n == 0 and not matched:
                logs = -math.inf
                break
            total = max(1, len(one) - n)
            logs += math.log((matched or _SMOOTHING) / total) / _MAX_N
        scores.append(_brevity(len(one), lengths) * math.exp(logs))
    return sum(scores) / len(scores)


def _grams(one: Sequence[str], n: int) -> list[_Gram]:
    return [tuple(one[at : at + n]) for at in range(len(one) - n + 1)]


def _two_highest(counts: Sequence[Counter[_Gram]]) -> dict[_Gram, tuple[int, int]]:
    """Returns the highest count of each n-gram in any text, and the highest in any other text."""
    most: dict[_Gram, tuple[int, int]] = {}
    for each in counts:
        for gram, count in each.items():
            first, second = most.get(gram, (0, 0))
            most[gram] = (max(first, count), max(second, min(first, count)))
    return most


def _most_of_others(highest: tuple[int, int], own: int) -> int:
    first, second = highest
    return second if own == first else first


def _brevity(length: int, lengths: Counter[int]) -> float:
    """Returns the penalty for a text that is shorter than the one of nearest length, the shorter
    of two that are as near."""
    others = (one for one, count in lengths.items() if count > (one == length))
    nearest = min(others, key=lambda one: (abs(one - length), one))
    return 1.0 if length > nearest else math.exp(1 - nearest / length)

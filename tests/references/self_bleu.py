"""Self-BLEU by the definition, slow and obvious."""

import math
from collections import Counter


def grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def bleu(text: list[str], others: list[list[str]]) -> float:
    """BLEU-4 with the smoothing of NLTK's method 1."""
    product = 1.0
    for n in range(1, 5):
        own = grams(text, n)
        matched = sum(
            min(count, max(grams(other, n)[gram] for other in others))
            for gram, count in own.items()
        )
        if n == 1 and not matched:
            return 0.0
        product *= (matched or 0.1) / max(1, sum(own.values()))
    nearest = min((abs(len(other) - len(text)), len(other)) for other in others)[1]
    brevity = 1.0 if len(text) > nearest else math.exp(1 - nearest / len(text))
    return brevity * product**0.25


def self_bleu(texts: list[list[str]]) -> float:
    scores = [bleu(text, texts[:at] + texts[at + 1 :]) for at, text in enumerate(texts)]
    return sum(scores) / len(scores)

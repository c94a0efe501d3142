"""ROUGE-L without stemming, slow and obvious."""

import re


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def rouge_l(expected: str, answer: str) -> float:
    """The F-measure of the longest common subsequence of words."""
    one, other = words(expected), words(answer)
    longest = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one, 1):
        for j, b in enumerate(other, 1):
            longest[i][j] = (
                longest[i - 1][j - 1] + 1 if a == b else max(longest[i - 1][j], longest[i][j - 1])
            )
    common = longest[-1][-1]
    return 2 * common / (len(one) + len(other)) if common else 0.0

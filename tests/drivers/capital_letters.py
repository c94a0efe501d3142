"""A reward that varies between answers of an untrained model: their share of capital letters."""


def score(prompt: str, answer: str) -> float:
    return sum(one.isupper() for one in answer) / max(1, len(answer))

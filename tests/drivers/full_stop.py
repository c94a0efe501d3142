"""A reward that can be checked: whether an answer ends in a full stop."""


def score(prompt: str, answer: str) -> float:
    return float(answer.endswith("."))

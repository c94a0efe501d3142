"""Random texts for an encoder, with a score that is a sum of its outputs' signs."""

import numpy as np

from paredown.evaluate.quality.task_quality import BATCH_TEXTS, TaskTexts
from paredown.executors.encoder_protocol import TokenText


def random_texts(num_texts: int = 12, vocab_size: int = 300, seed: int = 0) -> list[TokenText]:
    """Texts of 1 to 9 tokens, every second with segments."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(num_texts):
        ids = random.integers(0, vocab_size, random.integers(1, 10)).tolist()
        types = [int(place > 2) for place in range(len(ids))] if number % 2 else None
        found.append(TokenText(token_ids=ids, type_ids=types))
    return found


def random_task(
    num_texts: int = 12, *, labels: list[int] | None = None, batch_texts: int = BATCH_TEXTS
) -> TaskTexts:
    """Texts with `labels`, else with label 0; the score is the share of the right ones."""
    expected = np.array(labels or [0] * num_texts)
    return TaskTexts(
        name="random",
        texts=tuple(random_texts(num_texts)),
        score=lambda outputs: {"accuracy": float((outputs.argmax(1) == expected).mean())},
        protocol=f"{num_texts} random texts",
        batch_texts=batch_texts,
    )

"""Text that a model makes for its own training (LLM-QAT, arXiv 2305.17888, section 2.1).

Each window begins with a token drawn from the whole vocabulary. The next three to five tokens are
the likeliest, so that the text goes where the model is sure; the rest are drawn from the likeliest
`top_k` by their probabilities.
"""

import numpy as np
import numpy.typing as npt

from paredown.evaluate.texts.text import window_tokens
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.spec.kv import PAGE_SIZE

TOP_K = 50
_GREEDY_TOKENS = (3, 5)
_SEED = 2


def self_generated_windows(
    executor: Executor, num_windows: int, num_tokens: int, *, top_k: int = TOP_K, seed: int = _SEED
) -> npt.NDArray[np.int64]:
    """Returns [N, T] tokens. The same executor and seed give the same ones, however many texts are
    made at a time. It needs the pages of at least one text."""
    spec = executor.spec
    pages_each = -(-window_tokens(spec.max_positions) // PAGE_SIZE)
    at_once = max(1, executor.num_pages // pages_each)
    found = np.empty((num_windows, num_tokens), np.int64)
    for first in range(0, num_windows, at_once):
        numbers = range(first, min(first + at_once, num_windows))
        rngs = [np.random.default_rng([seed, number]) for number in numbers]
        found[first : first + len(rngs)] = _texts(executor, rngs, num_tokens, top_k)
    return found


def choose_token(
    logits_V: npt.NDArray[np.float32], rng: np.random.Generator, top_k: int | None
) -> int:
    """Returns the likeliest token where `top_k` is None, else one drawn from the likeliest."""
    if top_k is None:
        return int(logits_V.argmax())
    count = min(top_k, len(logits_V))
    likeliest = np.argpartition(-logits_V, count - 1)[:count]
    likeliest.sort()
    return int(likeliest[(logits_V[likeliest] + rng.gumbel(size=count)).argmax()])


def _texts(
    executor: Executor, rngs: list[np.random.Generator], num_tokens: int, top_k: int
) -> list[list[int]]:
    pages_each = executor.num_pages // len(rngs)
    texts = [[int(rng.integers(executor.spec.vocab_size))] for rng in rngs]
    lowest, highest = _GREEDY_TOKENS
    num_greedy = [int(rng.integers(lowest, highest + 1)) for rng in rngs]
    for position in range(num_tokens - 1):
        slices = [
            SequenceSlice(
                token_ids=text[position:],
                start=position,
                pages=list(range(i * pages_each, (i + 1) * pages_each)),
                num_logits=1,
            )
            for i, text in enumerate(texts)
        ]
        logits_NV = executor.step(slices)
        for text, rng, greedy, logits_V in zip(texts, rngs, num_greedy, logits_NV, strict=True):
            text.append(choose_token(logits_V, rng, None if position < greedy else top_k))
    return texts

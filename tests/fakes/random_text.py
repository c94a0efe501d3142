"""A text of random tokens in windows, for the tiny models."""

from collections.abc import Sequence

import numpy as np

from fakes.tiny_models import VOCAB_SIZE
from fakes.toy_executor import ToyTokenizer
from paredown.evaluate.texts.text import EvalText, prepare_text


class CountingTokenizer(ToyTokenizer):
    """Counts one byte per token."""

    def decode(self, token_ids: Sequence[int]) -> str:
        return "x" * len(token_ids)


def random_text(num_tokens: int = 60, window: int = 32) -> EvalText:
    ids = np.random.default_rng(3).integers(2, VOCAB_SIZE, num_tokens).tolist()
    return prepare_text(ids, CountingTokenizer(), window, "random tokens")

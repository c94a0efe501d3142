"""Answers that an encoder-decoder samples to prompts, for lack of a text."""

from collections.abc import Sequence

import numpy as np

from paredown.executors.protocol import Executor, SequenceSlice
from paredown.spec.kv import PAGE_SIZE

_SEED = 0


def sample_answers(
    executor: Executor, prompts: Sequence[Sequence[int]], start_token_id: int, num_tokens: int
) -> list[list[int]]:
    """Samples `num_tokens` tokens to each prompt at temperature 1 (Gumbel-max), without the token
    that the decoder starts with. The same executor and prompts give the same tokens. It needs the
    pages of at least one prompt and its answer."""
    rng = np.random.default_rng(_SEED)
    num_pages = -(-num_tokens // PAGE_SIZE)
    num_cross = -(-max(map(len, prompts)) // PAGE_SIZE)
    at_once = max(1, executor.num_pages // (num_pages + num_cross))
    answers = list[list[int]]()
    for first in range(0, len(prompts), at_once):
        batch = prompts[first : first + at_once]
        texts = [[start_token_id] for _ in batch]
        for position in range(num_tokens):
            slices = [
                _slice(text, prompt, i * (num_pages + num_cross), num_pages, position)
                for i, (text, prompt) in enumerate(zip(texts, batch, strict=True))
            ]
            logits_NV = executor.step(slices)
            drawn = np.argmax(logits_NV + rng.gumbel(size=logits_NV.shape), axis=1)
            for text, token in zip(texts, drawn, strict=True):
                text.append(int(token))
        answers += [text[1:] for text in texts]
    return answers


def _slice(
    text: list[int], prompt: Sequence[int], first_page: int, num_pages: int, position: int
) -> SequenceSlice:
    cross_page = first_page + num_pages
    return SequenceSlice(
        token_ids=text[position:],
        start=position,
        pages=list(range(first_page, cross_page)),
        num_logits=1,
        encoder_token_ids=() if position else prompt,
        num_cross_tokens=len(prompt),
        cross_pages=list(range(cross_page, cross_page + -(-len(prompt) // PAGE_SIZE))),
    )

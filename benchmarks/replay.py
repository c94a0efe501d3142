"""Prescribed answers: the model computes every step in full, but the text is given."""

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.engine.request import Request
from paredown.engine.speculate.proposer import Ask, Proposer
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.executors.wrapped_executor import WrappedExecutor


def scripted(executor: Executor, scripts: Sequence[list[int]]) -> Executor:
    """Makes the executor's logits follow a script, for one sequence at a time: the one of `scripts`
    that begins with its prompt. This yields text that small or random models do not write, such as
    a copy of the prompt or a better model's text."""
    script: list[int] = []

    def step(slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        nonlocal script
        logits = executor.step(slices)
        (part,) = slices
        if part.start == 0:
            script = script_of(scripts, part.token_ids)
        end = part.start + len(part.token_ids)
        for row, position in enumerate(range(end - part.num_logits, end)):
            if position + 1 < len(script):
                logits[row, script[position + 1]] = 1e4
        return logits

    return WrappedExecutor(executor, step)


def script_of(scripts: Sequence[list[int]], token_ids: list[int]) -> list[int]:
    """Returns the script that begins with these tokens."""
    return next(one for one in scripts if one[: len(token_ids)] == token_ids)


class ReplayProposer:
    """Runs a draft model for its time but proposes the script's tokens: each draft token is
    accepted with probability `rate`."""

    def __init__(self, draft: Proposer, scripts: Sequence[list[int]], rate: float) -> None:
        self._draft = draft
        self._scripts = scripts
        self._rate = rate
        self._random = random.Random(0)

    def propose(self, asks: Sequence[Ask]) -> list[list[int]]:
        return [
            self._replay(ask, draft)
            for ask, draft in zip(asks, self._draft.propose(asks), strict=True)
        ]

    def forget(self, request: Request) -> None:
        self._draft.forget(request)

    def _replay(self, ask: Ask, draft: list[int]) -> list[int]:
        start = len(ask.request.token_ids)
        prompt = ask.request.token_ids[: ask.request.num_prompt_tokens]
        known = script_of(self._scripts, prompt)[start : start + len(draft)]
        return [one if self._random.random() < self._rate else one ^ 1 for one in known]

"""Answers that are given: a model computes every step in full, but its text is another's."""

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.engine.executor import SequenceSlice
from paredown.engine.native.native_executor import NativeExecutor
from paredown.engine.request import Request
from paredown.engine.sampling.sampler import RowSampler
from paredown.engine.speculate.proposer import Ask, Proposer
from paredown.spec.model import ModelSpec


class ScriptedExecutor:
    """One sequence at a time, which the logits make go on as the one of `scripts` does that begins
    with its prompt. For what a small model or random weights do not write: a copy of the prompt, or
    the text of a better model."""

    def __init__(self, executor: NativeExecutor, scripts: Sequence[list[int]]) -> None:
        self._executor = executor
        self._scripts = scripts
        self._script: list[int] = []

    @property
    def spec(self) -> ModelSpec:
        return self._executor.spec

    @property
    def num_pages(self) -> int:
        return self._executor.num_pages

    @property
    def sampler(self) -> RowSampler:
        return self._executor.sampler

    def copy_pages(self, pairs: list[tuple[int, int]]) -> None:
        self._executor.copy_pages(pairs)

    def step(self, slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        logits = self._executor.step(slices)
        (part,) = slices
        if part.start == 0:
            self._script = script_of(self._scripts, part.token_ids)
        end = part.start + len(part.token_ids)
        for row, position in enumerate(range(end - part.num_logits, end)):
            if position + 1 < len(self._script):
                logits[row, self._script[position + 1]] = 1e4
        return logits


def script_of(scripts: Sequence[list[int]], token_ids: list[int]) -> list[int]:
    """The one that begins with these tokens."""
    return next(one for one in scripts if one[: len(token_ids)] == token_ids)


class ReplayProposer:
    """Asks a draft model for the time it takes, and guesses what a script says: each guess comes
    true with probability `rate`."""

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

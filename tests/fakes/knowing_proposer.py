"""A proposer that knows the answers. It makes long accepted runs and leaves rejected tokens in
pages."""

import random
from collections.abc import Sequence

from paredown.engine.request import Request
from paredown.engine.speculate.proposer import Ask


class KnowingProposer:
    """`answers` holds prompts with their answers without speculation; one token of six is
    changed."""

    def __init__(self, answers: list[list[int]]) -> None:
        self._random = random.Random(1)
        self._answers = answers

    def propose(self, asks: Sequence[Ask]) -> list[list[int]]:
        return [self._propose(ask) for ask in asks]

    def forget(self, request: Request) -> None:
        pass

    def _propose(self, ask: Ask) -> list[int]:
        known = ask.request.token_ids
        whole = next((one for one in self._answers if one[: len(known)] == known), known)
        draft = whole[len(known) : len(known) + ask.max_tokens]
        return [self._random.choice([one] * 5 + [1]) for one in draft]

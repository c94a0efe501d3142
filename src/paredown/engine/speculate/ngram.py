"""Prompt lookup decoding (Saxena, 2023): finds the request's last tokens earlier in its prompt or
answer, and proposes the tokens that followed there."""

from collections.abc import Sequence

from paredown.engine.request import Request
from paredown.engine.speculate.proposer import Ask
from paredown.kernels.suffix_index import SuffixIndex, SuffixMatch

_OWN = 0


class NgramProposer:
    """Finds the longest suffix match in prompt and answer with an index that grows with them."""

    def __init__(self, *, min_match: int) -> None:
        self._min_match = min_match
        self._indexes: dict[int, SuffixIndex] = {}

    def propose(self, asks: Sequence[Ask]) -> list[list[int]]:
        return [self._propose(ask) for ask in asks]

    def forget(self, request: Request) -> None:
        self._indexes.pop(request.id, None)

    def find(self, request: Request) -> SuffixMatch | None:
        """Returns the longest match in the request's own text."""
        index = self._indexes.get(request.id)
        if index is None:
            index = self._indexes[request.id] = SuffixIndex(min_match=self._min_match)
        index.update(_OWN, request.token_ids)
        return index.find(request.token_ids)

    def continue_from(self, request: Request, match: SuffixMatch, max_tokens: int) -> list[int]:
        """Returns the tokens that followed a match of `find`."""
        return self._indexes[request.id].continue_from(match, max_tokens, own=_OWN)

    def _propose(self, ask: Ask) -> list[int]:
        match = self.find(ask.request)
        if match is None:
            return []
        return self.continue_from(ask.request, match, ask.max_tokens)

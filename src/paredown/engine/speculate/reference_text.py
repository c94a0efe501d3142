"""Inference with reference (LLMA, Yang et al. 2023, arXiv 2304.04487), for answers that repeat
known texts, such as retrieved documents or an edited file."""

from collections.abc import Sequence

from paredown.engine.request import Request
from paredown.engine.speculate.proposer import Ask
from paredown.kernels.suffix_index import SuffixIndex


class ReferenceTextProposer:
    """Proposes the tokens that follow the request's last tokens in a reference text.

    `min_match` is the paper's trigger n. The paper resumes copying where it last copied; the
    longest match finds that place again. `texts` are token ids.
    """

    def __init__(self, texts: Sequence[Sequence[int]], *, min_match: int) -> None:
        self._index = SuffixIndex(min_match=min_match)
        for number, text in enumerate(texts):
            self._index.update(number, list(text))

    def propose(self, asks: Sequence[Ask]) -> list[list[int]]:
        return [self._propose(ask) for ask in asks]

    def forget(self, request: Request) -> None:
        """Does nothing, because no request has any state here."""

    def _propose(self, ask: Ask) -> list[int]:
        match = self._index.find(ask.request.token_ids)
        if match is None:
            return []
        return self._index.continue_from(match, ask.max_tokens, own=None)

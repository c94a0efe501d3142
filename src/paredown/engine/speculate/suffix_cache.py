"""Suffix decoding (SuffixDecoding, Oliaro et al. 2024, arXiv 2411.04975): answers repeat passages
of their own text and of earlier answers to any request.

The paper keeps suffix trees and follows the most frequent continuation of the longest match. The
index here does this over the latest places of each run of tokens (csrc/sampling/suffix_index.h),
with at most one place per cached token.
"""

from collections import OrderedDict
from collections.abc import Sequence

from paredown.engine.request import Request
from paredown.engine.speculate.ngram import NgramProposer
from paredown.engine.speculate.proposer import Ask
from paredown.kernels.suffix_index import SuffixIndex


class SuffixCacheProposer:
    """Takes the longer of two matches: in the request's own text, and in answers of ended requests.

    The cache holds at most `max_cached_tokens` tokens and evicts the least recently matched
    answers. A longer answer is cached up to that length. Answers are separated by their requests'
    salts, like prompts in the prefix cache, so that timing reveals nothing about other tenants'
    answers.
    """

    def __init__(self, *, min_match: int, max_cached_tokens: int) -> None:
        self._own = NgramProposer(min_match=min_match)
        self._min_match = min_match
        self._max_cached_tokens = max_cached_tokens
        self._indexes: dict[str, SuffixIndex] = {}
        # Number of an answer -> its salt and tokens, the least recently matched first.
        self._answers: OrderedDict[int, tuple[str, list[int]]] = OrderedDict()
        self._num_answers = 0
        self.num_cached_tokens = 0

    def propose(self, asks: Sequence[Ask]) -> list[list[int]]:
        return [self._propose(ask) for ask in asks]

    def forget(self, request: Request) -> None:
        """Adds the request's answer to the cache."""
        self._own.forget(request)
        first = request.num_prompt_tokens
        answer = request.token_ids[first : first + self._max_cached_tokens]
        if not answer:
            return
        salt = request.service.salt
        if salt not in self._indexes:
            self._indexes[salt] = SuffixIndex(min_match=self._min_match)
        self._indexes[salt].update(self._num_answers, answer)
        self._answers[self._num_answers] = (salt, answer)
        self._num_answers += 1
        self.num_cached_tokens += len(answer)
        while self.num_cached_tokens > self._max_cached_tokens:
            self._drop_oldest()

    def check_integrity(self) -> None:
        """Asserts that the memory stays within its bound."""
        num_tokens = sum(len(answer) for _, answer in self._answers.values())
        assert num_tokens == self.num_cached_tokens <= self._max_cached_tokens
        assert sum(one.num_runs for one in self._indexes.values()) <= num_tokens
        assert self._indexes.keys() == {salt for salt, _ in self._answers.values()}

    def _drop_oldest(self) -> None:
        number, (salt, answer) = self._answers.popitem(last=False)
        self._indexes[salt].remove(number)
        if not self._indexes[salt].num_sequences:
            del self._indexes[salt]
        self.num_cached_tokens -= len(answer)

    def _propose(self, ask: Ask) -> list[int]:
        own = self._own.find(ask.request)
        index = self._indexes.get(ask.request.service.salt)
        earlier = None if index is None else index.find(ask.request.token_ids)
        if (
            index is not None
            and earlier is not None
            and (own is None or earlier.length > own.length)
        ):
            for number, _ in earlier.places:
                self._answers.move_to_end(number)
            return index.continue_from(earlier, ask.max_tokens, own=None)
        if own is None:
            return []
        return self._own.continue_from(ask.request, own, ask.max_tokens)

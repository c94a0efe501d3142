"""Repetition: plans steps in which the same requests decode, without visiting each request.

A decoding request takes one token per step and a page every 16th step. While none begins, ends or
gets drafts, a step's plan equals the previous one, and only requests that may need a new page are
visited. After the model has run, each visited object costs a memory access (docs/log.md).
"""

from collections.abc import Sequence

from paredown.engine.request import Request
from paredown.spec.kv import PAGE_SIZE


class Repetition:
    """Repeats a plan that gave each of `requests` its one uncomputed token; each step computes that
    token and adds another."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._first = requests[0]
        self._num_tokens = len(self._first.token_ids)
        # By the number of tokens, modulo the page size, after which a request's pages are full.
        self._due: list[list[Request]] = [[] for _ in range(PAGE_SIZE)]
        for one in requests:
            num_covered = one.num_covered_tokens - len(one.token_ids)
            self._due[num_covered % PAGE_SIZE].append(one)

    @classmethod
    def of(cls, requests: Sequence[Request]) -> "Repetition | None":
        """Returns the repetition of a plan over these requests, or None unless there are some and
        each has one uncomputed token and no drafts."""
        for one in requests:
            if one.num_computed_tokens != len(one.token_ids) - 1 or one.draft_token_ids:
                return None
        return cls(requests) if requests else None

    def due(self) -> Sequence[Request]:
        """Returns the requests whose last token may lie outside their pages."""
        num_more = len(self._first.token_ids) - self._num_tokens
        return self._due[(num_more - 1) % PAGE_SIZE]

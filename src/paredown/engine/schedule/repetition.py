"""Repetition: steps in which the same requests decode, planned without a look at each of them.

A request that decodes takes one token of each step, and a page in every 16th. While none begins,
ends or gets drafts, the plan of a step is that of the step before, and of its requests only those
are looked at that may go on into a new page. Python finds most of what it looks at in memory, not
in the caches, once a model has run (docs/log.md).
"""

from collections.abc import Sequence

from paredown.engine.request import Request
from paredown.spec.kv import PAGE_SIZE


class Repetition:
    """The repetition of a plan that gave each of `requests` its one uncomputed token, which is
    computed and followed by another in each step from then on."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._first = requests[0]
        self._num_tokens = len(self._first.token_ids)
        # By how many tokens each had got, modulo those of a page, when its pages were full.
        self._due: list[list[Request]] = [[] for _ in range(PAGE_SIZE)]
        for one in requests:
            num_covered = one.num_covered_tokens - len(one.token_ids)
            self._due[num_covered % PAGE_SIZE].append(one)

    @classmethod
    def of(cls, requests: Sequence[Request]) -> "Repetition | None":
        """The repetition of a plan over these requests; None unless there are some, and each has
        one uncomputed token and no drafts."""
        for one in requests:
            if one.num_computed_tokens != len(one.token_ids) - 1 or one.draft_token_ids:
                return None
        return cls(requests) if requests else None

    def due(self) -> Sequence[Request]:
        """The requests whose last token their pages may not cover."""
        num_more = len(self._first.token_ids) - self._num_tokens
        return self._due[(num_more - 1) % PAGE_SIZE]

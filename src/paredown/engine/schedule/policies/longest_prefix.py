"""Longest prefix match: the request with the largest cached share goes first, before that prefix is
evicted (SGLang's "lpm"). A full match is worth a fixed waiting time, and only the oldest requests
are considered.

Bound: a request is overtaken only by requests that arrive less than FULL_MATCH_S after it.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from paredown.engine.memory.request_pages import RequestPages
from paredown.engine.request import Request
from paredown.spec.kv import PAGE_SIZE

FULL_MATCH_S = 10.0
WINDOW = 64


@dataclass(slots=True)
class _Match:
    """The prefix that the last lookup found, and the content of the next page."""

    num_pages: int
    parent: int | str
    content: Hashable


class LongestPrefixQueue:
    """Implements WaitingQueue. Repeated lookups check one page, not the whole prefix: while the end
    of a chain is cached, so is everything before it."""

    def __init__(self, pages: RequestPages) -> None:
        self._pages = pages
        self._order: list[tuple[int, Request]] = []
        self._matches: dict[int, _Match] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Request]:
        return (request for _, request in self._order)

    def push(self, request: Request) -> None:
        insort(self._order, (request.id, request))

    def first(self) -> Request:
        return min(self._order[:WINDOW], key=self._key)[1]

    def remove(self, request: Request) -> None:
        del self._order[bisect_left(self._order, request.id, key=lambda entry: entry[0])]
        self._matches.pop(request.id, None)

    def _key(self, entry: tuple[int, Request]) -> tuple[float, int]:
        request = entry[1]
        share = self._num_matched_pages(request) * PAGE_SIZE / len(request.token_ids)
        return request.arrival_s - FULL_MATCH_S * share, request.id

    def _num_matched_pages(self, request: Request) -> int:
        match = self._matches.get(request.id)
        if match is None or (isinstance(match.parent, int) and not self._pages.has(match.parent)):
            match = _Match(0, request.salt, request.contents(0, 1)[0])
            self._matches[request.id] = match
        max_pages = (len(request.token_ids) - 1) // PAGE_SIZE
        while match.num_pages < max_pages:
            node = self._pages.child((match.parent, match.content))
            if node is None:
                break
            match.num_pages += 1
            match.parent = node
            match.content = request.contents(match.num_pages, match.num_pages + 1)[0]
        return match.num_pages

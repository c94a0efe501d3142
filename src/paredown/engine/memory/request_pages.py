"""RequestPages: the pages of the requests that run, taken, shared, filled and given back."""

from collections.abc import Hashable, Iterable

from paredown.engine.memory.pages import PagePool
from paredown.engine.memory.prefix_cache import PrefixCache
from paredown.engine.request import Request
from paredown.spec.kv import PAGE_SIZE

_Key = tuple[Hashable, Hashable]


class RequestPages:
    """Joins the pool and the prefix cache, which know nothing of requests.

    Requests that begin alike and come together compute their prefix once: while one of them is
    about to fill a page, the others are told to wait for it.
    """

    def __init__(self, num_pages: int, *, prefix_cache: bool) -> None:
        self.cache = PrefixCache(num_pages)
        self.pool = PagePool(num_pages, on_evict=self.cache.forget)
        self._uses_cache = prefix_cache
        # The page of its known tokens that each request will fill next, both ways.
        self._filled_by: dict[_Key, int] = {}
        self._fills: dict[int, _Key] = {}

    def is_awaited(self, request: Request) -> bool:
        """Whether a running request is about to fill the first page that this one lacks."""
        if not self._filled_by or not self._finds(request):
            return False
        found = self._find(request)
        key = self._next_key(request, found)
        return key is not None and key in self._filled_by

    def start(self, request: Request) -> bool:
        """Gives a request its pages, those with its first tokens in them first. The last token is
        computed in any case, for its logits. False, and nothing done, when too few are free."""
        num_tokens = request.num_tokens
        pages = self._find(request) if self._finds(request) else []
        self.pool.hold(pages)
        fresh = self.pool.allocate(-(-num_tokens // PAGE_SIZE) - len(pages))
        if fresh is None:
            self.pool.release(reversed(pages))
            return False
        request.num_sealed_pages = len(pages)
        request.num_computed_tokens = len(pages) * PAGE_SIZE
        request.pages = pages + fresh
        if self._finds(request):
            self.cache.stats.note(num_tokens, request.num_computed_tokens)
        if not request.num_preemptions:
            request.num_cached_tokens = request.num_computed_tokens
        self._note_next(request)
        return True

    def share(self, parent: Request, child: Request) -> None:
        """Gives a request the pages with the computed tokens of another."""
        child.pages = parent.pages[: -(-parent.num_computed_tokens // PAGE_SIZE)]
        child.num_computed_tokens = child.num_cached_tokens = parent.num_computed_tokens
        child.num_sealed_pages = parent.num_sealed_pages
        self.pool.hold(child.pages)

    def is_ready(self, request: Request) -> bool:
        """Whether there is a place for every certain token, and no other holder where the next is
        to be written."""
        pages, computed = request.pages, request.num_computed_tokens
        return len(request.token_ids) <= len(pages) * PAGE_SIZE and not (
            computed % PAGE_SIZE and self.pool.is_shared(pages[computed // PAGE_SIZE])
        )

    def grow(self, request: Request, num_tokens: int, copies: list[tuple[int, int]]) -> bool:
        """Takes what pages `num_tokens` ask for and, where the next token goes into a shared page,
        one for a copy of it. False, and nothing done, when too few are free."""
        pages, index = request.pages, request.num_computed_tokens // PAGE_SIZE
        num_missing = max(-(-num_tokens // PAGE_SIZE) - len(pages), 0)
        is_copied = index < len(pages) and self.pool.is_shared(pages[index])
        fresh = self.pool.allocate(num_missing + is_copied)
        if fresh is None:
            return False
        if is_copied:
            page = fresh.pop()
            copies.append((pages[index], page))
            self.pool.release([pages[index]])
            pages[index] = page
        pages += fresh
        return True

    def seal(self, request: Request) -> None:
        """Puts the pages that are full now into the cache; where it has the same already, from
        another request, that page takes the place of this one's."""
        start, pages = request.num_sealed_pages, request.pages
        request.num_sealed_pages = end = request.num_computed_tokens // PAGE_SIZE
        if not self._uses_cache:
            return
        cache, pool = self.cache, self.pool
        parent: Hashable = cache.node(pages[start - 1]) if start else request.service.salt
        for index in range(start, end):
            page = pages[index]
            pages[index] = known = cache.add(parent, request.page_content(index), page)
            if known == page:
                pool.keep(page)
            else:
                pool.hold([known])
                pool.release([page])
            parent = cache.node(known)
        if self._fills:
            self._forget_next(request)
            self._note_next(request)

    def release(self, request: Request) -> None:
        self._forget_next(request)
        self.pool.release(reversed(request.pages))
        request.pages = []
        request.num_sealed_pages = 0

    def check_integrity(self, running: Iterable[Request]) -> None:
        """Asserts that pages are counted right and hold what the cache says."""
        requests = list(running)
        self.pool.check_integrity(request.pages for request in requests)
        self.cache.check_integrity()
        assert {key: number for number, key in self._fills.items()} == self._filled_by
        assert self._fills.keys() <= {request.id for request in requests}
        for request in requests:
            assert request.num_computed_tokens <= len(request.pages) * PAGE_SIZE
            assert request.num_sealed_pages == request.num_computed_tokens // PAGE_SIZE
            if self._uses_cache:
                content, num_sealed = request.page_content, request.num_sealed_pages
                known = self.cache.find(request.service.salt, content, num_sealed)
                assert known == request.pages[:num_sealed]

    def _finds(self, request: Request) -> bool:
        return self._uses_cache and not request.needs_every_row

    def _find(self, request: Request) -> list[int]:
        max_pages = (request.num_tokens - 1) // PAGE_SIZE
        return self.cache.find(request.service.salt, request.page_content, max_pages)

    def _next_key(self, request: Request, sealed: list[int]) -> _Key | None:
        """Of the page after the sealed ones, where others of the same tokens could use it."""
        if (len(sealed) + 1) * PAGE_SIZE > len(request.token_ids) or not self._uses_cache:
            return None
        parent: Hashable = self.cache.node(sealed[-1]) if sealed else request.service.salt
        return parent, request.page_content(len(sealed))

    def _note_next(self, request: Request) -> None:
        key = self._next_key(request, request.pages[: request.num_sealed_pages])
        if key is not None and key not in self._filled_by:
            self._filled_by[key] = request.id
            self._fills[request.id] = key

    def _forget_next(self, request: Request) -> None:
        key = self._fills.pop(request.id, None)
        if key is not None:
            del self._filled_by[key]

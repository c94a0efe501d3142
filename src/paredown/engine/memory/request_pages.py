"""RequestPages: the pages of the requests that run, taken, shared, filled and given back."""

from collections.abc import Hashable, Iterable

from paredown.engine.memory.kept_pages import KeptPages
from paredown.engine.memory.pages import PagePool
from paredown.engine.memory.prefix_cache import PrefixCache
from paredown.engine.request import Request
from paredown.spec.kv import PAGE_SIZE

_Key = tuple[Hashable, Hashable]


class RequestPages:
    """Joins the pool and the prefix cache, which know nothing of requests.

    Requests that begin alike and come together compute their prefix once: while one of them is
    about to fill a page, the others are told to wait for it.

    A request takes pages for all of its tokens. Where it gives pages up behind its window, it takes
    `max_pages` at most, and others as it goes on.
    """

    def __init__(
        self, num_pages: int, *, prefix_cache: bool, kept: KeptPages, max_step_tokens: int
    ) -> None:
        self.cache = PrefixCache(num_pages)
        self.pool = PagePool(num_pages, on_evict=self.cache.forget)
        self.max_pages = kept.pages_of(num_pages * PAGE_SIZE, max_step_tokens)
        self._kept = kept
        self._uses_cache = prefix_cache
        # The page of its known tokens that each request will fill next, both ways.
        self._filled_by: dict[_Key, int] = {}
        self._fills: dict[int, _Key] = {}

    def is_awaited(self, request: Request) -> bool:
        """Whether a running request is about to fill the first page that this one lacks."""
        if not self._filled_by or not self._finds(request):
            return False
        found = self._find(request)
        node = self.cache.node(found[-1]) if found else None
        key = self._next_key(request, len(found), node)
        return key is not None and key in self._filled_by

    def start(self, request: Request) -> bool:
        """Gives a request its pages, those with its first tokens in them first. The last token is
        computed in any case, for its logits. False, and nothing done, when too few are free."""
        found = self._find(request) if self._finds(request) else []
        self.pool.hold(found)
        request.pages.extend(found)
        request.num_computed_tokens = len(found) * PAGE_SIZE
        request.num_sealed_pages = len(found)
        request.sealed_node = self.cache.node(found[-1]) if found else None
        self.drop_unseen(request)
        fresh = self.pool.allocate(self._num_missing(request, request.num_tokens))
        if fresh is None:
            self._give_back(request)
            request.num_computed_tokens = 0
            return False
        self._add(request, fresh)
        if self._finds(request):
            self.cache.stats.note(request.num_tokens, request.num_computed_tokens)
        if not request.num_preemptions:
            request.num_cached_tokens = request.num_computed_tokens
        self._note_next(request)
        return True

    def share(self, parent: Request, child: Request) -> None:
        """Gives a request the pages with the computed tokens of another. Neither has a place for
        more until it has asked for one, and got a copy of the last page if that is half full."""
        end = -(-parent.num_computed_tokens // PAGE_SIZE) - parent.num_released_pages
        child.pages.extend(parent.pages[:end])
        child.num_released_pages = parent.num_released_pages
        child.num_covered_tokens = parent.num_covered_tokens = parent.num_computed_tokens
        child.num_computed_tokens = child.num_cached_tokens = parent.num_computed_tokens
        child.num_sealed_pages, child.sealed_node = parent.num_sealed_pages, parent.sealed_node
        self.pool.hold(child.pages)

    def grow(self, request: Request, num_tokens: int, copies: list[tuple[int, int]]) -> bool:
        """Takes what pages `num_tokens` ask for and, where the next token goes into a shared page,
        one for a copy of it. False, and nothing done, when too few are free."""
        pages = request.pages
        index = request.num_computed_tokens // PAGE_SIZE - request.num_released_pages
        num_missing = max(self._num_missing(request, num_tokens), 0)
        is_copied = index < len(pages) and self.pool.is_shared(pages[index])
        fresh = self.pool.allocate(num_missing + is_copied)
        if fresh is None:
            return False
        if is_copied:
            page = fresh.pop()
            copies.append((pages[index], page))
            self.pool.release([pages[index]])
            pages[index] = page
        self._add(request, fresh)
        return True

    def seal(self, request: Request) -> None:
        """Puts the pages that are full now into the cache; where it has the same already, from
        another request, that page takes the place of this one's."""
        start, pages = request.num_sealed_pages, request.pages
        request.num_sealed_pages = end = request.num_computed_tokens // PAGE_SIZE
        if not self._uses_cache:
            return
        cache, pool = self.cache, self.pool
        if start and not cache.has(request.sealed_node):
            return  # what is before them was evicted: nobody could find them
        for index in range(start, end):
            place = index - request.num_released_pages
            page, parent = pages[place], request.sealed_node if index else request.service.salt
            pages[place] = known = cache.add(parent, request.page_content(index), page)
            if known == page:
                pool.keep(page)
            else:
                pool.hold([known])
                pool.release([page])
            request.sealed_node = cache.node(known)
        if self._fills:
            self._forget_next(request)
            self._note_next(request)

    def drop_unseen(self, request: Request) -> None:
        """Gives up the pages that its next token does not see, nor any later one."""
        num_pages = self._kept.num_released(request.num_computed_tokens)
        num_pages -= request.num_released_pages
        if num_pages > 0:
            first = self._kept.num_sink_pages
            self.pool.release(reversed(request.pages[first : first + num_pages]))
            del request.pages[first : first + num_pages]
            request.num_released_pages += num_pages

    def release(self, request: Request) -> None:
        self._forget_next(request)
        self._give_back(request)

    def num_wanted_pages(self, request: Request) -> int:
        """That it needs to start."""
        return min(-(-request.num_tokens // PAGE_SIZE), self.max_pages)

    def check_integrity(self, running: Iterable[Request]) -> None:
        """Asserts that pages are counted right and hold what the cache says."""
        requests = list(running)
        self.pool.check_integrity(request.pages for request in requests)
        self.cache.check_integrity()
        assert {key: number for number, key in self._fills.items()} == self._filled_by
        assert self._fills.keys() <= {request.id for request in requests}
        for request in requests:
            num_pages = len(request.pages) + request.num_released_pages
            assert request.num_computed_tokens <= request.num_covered_tokens
            assert request.num_covered_tokens <= num_pages * PAGE_SIZE
            assert len(request.pages) <= self.max_pages
            num_released = self._kept.num_released(request.num_computed_tokens)
            assert request.num_released_pages == num_released
            assert request.num_sealed_pages == request.num_computed_tokens // PAGE_SIZE
            if self.cache.has(request.sealed_node):
                content, num_sealed = request.page_content, request.num_sealed_pages
                known = self.cache.find(request.service.salt, content, num_sealed)
                assert len(known) == num_sealed
                first = self._kept.num_sink_pages
                del known[first : first + num_released]
                assert known == request.pages[: len(known)].tolist()
            else:
                assert num_released or not (self._uses_cache and request.num_sealed_pages)

    def _finds(self, request: Request) -> bool:
        return self._uses_cache and not request.needs_every_row

    def _find(self, request: Request) -> list[int]:
        max_pages = (request.num_tokens - 1) // PAGE_SIZE
        return self.cache.find(request.service.salt, request.page_content, max_pages)

    def _add(self, request: Request, pages: list[int]) -> None:
        request.pages.extend(pages)
        num_pages = len(request.pages) + request.num_released_pages
        request.num_covered_tokens = num_pages * PAGE_SIZE

    def _give_back(self, request: Request) -> None:
        self.pool.release(reversed(request.pages))
        del request.pages[:]
        request.num_released_pages = request.num_covered_tokens = 0
        request.num_sealed_pages, request.sealed_node = 0, None

    def _num_missing(self, request: Request, num_tokens: int) -> int:
        """Pages that it lacks for `num_tokens` tokens, or for as many as it may have places for."""
        num_more = min(-(-num_tokens // PAGE_SIZE) - request.num_released_pages, self.max_pages)
        return num_more - len(request.pages)

    def _next_key(self, request: Request, num_sealed: int, node: int | None) -> _Key | None:
        """Of the page after the sealed ones, where others of the same tokens could use it."""
        if (num_sealed + 1) * PAGE_SIZE > len(request.token_ids) or not self._uses_cache:
            return None
        if num_sealed and not self.cache.has(node):
            return None
        return node if num_sealed else request.service.salt, request.page_content(num_sealed)

    def _note_next(self, request: Request) -> None:
        key = self._next_key(request, request.num_sealed_pages, request.sealed_node)
        if key is not None and key not in self._filled_by:
            self._filled_by[key] = request.id
            self._fills[request.id] = key

    def _forget_next(self, request: Request) -> None:
        key = self._fills.pop(request.id, None)
        if key is not None:
            del self._filled_by[key]

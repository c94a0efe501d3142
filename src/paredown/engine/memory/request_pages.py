"""RequestPages: allocates, shares, fills and frees the pages of running requests."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from paredown.engine.memory.pages import PagePool
from paredown.engine.memory.prefix_cache import PageContents, PageKey, PrefixCache
from paredown.engine.request import Request
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE


@dataclass(slots=True)
class FoundPrefix:
    """The pages that hold a request's first tokens, the node of the last one, and the key of the
    next page; the key is None where that page is not full."""

    pages: list[int]
    node: int | None
    next_key: PageKey | None


@dataclass(slots=True, eq=False)
class _RestingRun:
    """Pages that an ended request has filled and nobody has asked for: the number of their run in
    the pool, the key of the first, and the content of each."""

    number: int
    key: PageKey
    contents: PageContents


_NOTHING_FOUND: Final = FoundPrefix([], None, None)


class RequestPages:
    """Connects the pool with the prefix cache; neither knows about requests.

    Requests with the same beginning that arrive together compute their prefix once: while one is
    about to fill a page, the others wait for it.

    A request's computed pages enter the cache only when another request looks for the first one
    that is missing. This also holds for ended requests; most pages are never asked for
    (docs/log.md).

    A request takes pages for all its tokens. If it gives up pages behind its window, it takes at
    most `max_pages` and gets more as it proceeds.
    """

    def __init__(
        self, num_pages: int, *, prefix_cache: bool, kept: KeptPages, max_step_tokens: int
    ) -> None:
        self.cache = PrefixCache(num_pages)
        self.pool = PagePool(num_pages, on_evict=self._forget)
        self.max_pages = kept.pages_of(num_pages * PAGE_SIZE, max_step_tokens)
        self._kept = kept
        self._uses_cache = prefix_cache
        # The first page that each request has computed but not yet put into the cache, in both
        # directions.
        self._filled_by: dict[PageKey, Request | _RestingRun] = {}
        self._fills: dict[int, PageKey] = {}
        # By run number.
        self._resting: dict[int, _RestingRun] = {}

    def find(self, request: Request) -> FoundPrefix:
        """Returns the cached prefix of a waiting request. The last token is always computed,
        because its logits are needed."""
        if not self._uses_cache:
            return _NOTHING_FOUND
        salt, first = request.salt, request.first_page
        if first is not None:
            key: PageKey = (salt, first)
            if key not in self._filled_by and not self.cache.begins_with(key):
                return FoundPrefix([], None, key)
        num_full = len(request.token_ids) // PAGE_SIZE
        contents = request.contents(0, num_full)
        max_pages = 0 if request.needs_every_row else (request.num_tokens - 1) // PAGE_SIZE
        while True:
            pages, node = self.cache.find(salt, contents, max_pages)
            if len(pages) == num_full:
                return FoundPrefix(pages, node, None)
            key = (salt if node is None else node, contents[len(pages)])
            if not self._publish(key):
                return FoundPrefix(pages, node, key)

    def has(self, node: int | None) -> bool:
        """Returns whether a node's page, and so every page before it, is still in the cache."""
        return self.cache.has(node)

    def child(self, key: PageKey) -> int | None:
        """Returns the node of the page with this key, or None."""
        found = self.cache.child(key)
        if found is None and self._publish(key):
            found = self.cache.child(key)
        return found

    def is_awaited(self, request: Request, prefix: FoundPrefix) -> bool:
        """Returns whether a running request is about to fill the first page that this one lacks."""
        return prefix.next_key in self._filled_by and not request.needs_every_row

    def start(self, request: Request, prefix: FoundPrefix) -> bool:
        """Gives a request its pages, beginning with those of its cached prefix. Returns False and
        changes nothing when too few are free."""
        found = prefix.pages
        self.pool.hold(found)
        request.pages.extend(found)
        request.num_computed_tokens = len(found) * PAGE_SIZE
        request.num_sealed_pages = len(found)
        request.sealed_node = prefix.node
        self.drop_unseen(request)
        num_cross = request.num_cross_pages
        fresh = self.pool.allocate(num_cross + self._num_missing(request, request.num_tokens))
        if fresh is None:
            self._give_back(request)
            request.num_computed_tokens = 0
            return False
        request.cross_pages.extend(fresh[:num_cross])
        self._add(request, fresh[num_cross:])
        if self._uses_cache and not request.needs_every_row:
            self.cache.stats.note(request.num_tokens, request.num_computed_tokens)
        if not request.num_preemptions:
            request.num_cached_tokens = request.num_computed_tokens
        self._note_next(request, prefix.next_key)
        return True

    def share(self, parent: Request, child: Request) -> None:
        """Gives a request the pages with another's computed tokens. To write more, either must
        first call `grow`, which copies a half-full last page."""
        self.seal(parent)
        end = -(-parent.num_computed_tokens // PAGE_SIZE) - parent.num_released_pages
        child.pages.extend(parent.pages[:end])
        child.num_released_pages = parent.num_released_pages
        child.num_covered_tokens = parent.num_covered_tokens = parent.num_computed_tokens
        child.num_computed_tokens = child.num_cached_tokens = parent.num_computed_tokens
        child.num_sealed_pages, child.sealed_node = parent.num_sealed_pages, parent.sealed_node
        child.cross_pages.extend(parent.cross_pages)
        self.pool.hold((*child.pages, *child.cross_pages))

    def grow(self, request: Request, num_tokens: int, copies: list[tuple[int, int]]) -> bool:
        """Allocates the pages that `num_tokens` tokens need, and a copy where the next token goes
        into a shared page. Returns False and changes nothing when too few are free."""
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
        """Puts the full pages into the cache; where another request's page has the same content,
        that page replaces this one. This happens when somebody looks for them, and when the request
        is parked or shared, or gives pages up."""
        start = request.num_sealed_pages
        request.num_sealed_pages = end = request.num_computed_tokens // PAGE_SIZE
        if not self._uses_cache or start == end:
            return
        node = request.sealed_node
        if start and not self.cache.has(node):
            return  # nobody could find them: a page before was evicted
        place = slice(start - request.num_released_pages, end - request.num_released_pages)
        own = request.pages[place].tolist()
        parent = request.salt if node is None else node
        known, request.sealed_node = self.cache.add(parent, request.contents(start, end), own)
        if known != own:
            others = [pair for pair in zip(known, own, strict=True) if pair[0] != pair[1]]
            self.pool.hold(page for page, _ in others)
            self.pool.release(page for _, page in others)
            request.pages[place] = array("i", known)
        self.pool.keep(known)
        if request.id in self._fills:
            self._forget_next(request)
            self._note_next(request, self._next_key(request))

    def drop_unseen(self, request: Request) -> None:
        """Frees the pages that neither its next token nor any later one sees."""
        num_pages = self._kept.num_released(request.num_computed_tokens)
        num_pages -= request.num_released_pages
        if num_pages > 0:
            self.seal(request)
            first = self._kept.num_sink_pages
            self.pool.release(reversed(request.pages[first : first + num_pages]))
            del request.pages[first : first + num_pages]
            request.num_released_pages += num_pages

    def park(self, request: Request) -> None:
        """Marks that the request fills no more pages but keeps those it has."""
        self._forget_next(request)
        self.seal(request)

    def release(self, request: Request) -> None:
        """Frees the pages of a request that ended or is preempted. Its computed content stays until
        pages are needed."""
        if not self._rest(request):
            self.park(request)
        self._give_back(request)

    def chain(self, page: int) -> list[int]:
        """Returns all pages from the start of a kept page's sequence up to it."""
        for resting in self._resting.values():
            pages = self.pool.idle_run(resting.number)
            if page in pages:
                own, parent = pages[: pages.index(page) + 1], resting.key[0]
                if isinstance(parent, str):
                    return own
                return self.cache.chain(self.cache.page(parent)) + own
        return self.cache.chain(page)

    def num_wanted_pages(self, request: Request) -> int:
        """Returns the number of pages that the request needs before it can start."""
        own = min(-(-request.num_tokens // PAGE_SIZE), self.max_pages)
        return own + request.num_cross_pages

    def check_integrity(self, running: Iterable[Request]) -> None:
        """Asserts that page counts are right and that pages hold what the cache says."""
        requests = list(running)
        self.pool.check_integrity([*request.pages, *request.cross_pages] for request in requests)
        self.cache.check_integrity()
        fillers = self._filled_by.items()
        ids = {key: one.id for key, one in fillers if isinstance(one, Request)}
        assert {key: number for number, key in self._fills.items()} == ids
        resting = {one.number: one for _, one in fillers if isinstance(one, _RestingRun)}
        assert self._resting == resting
        assert all(self._filled_by[one.key] is one for one in resting.values())
        assert all(one.key[1] == one.contents[0] for one in resting.values())
        num_resting = [len(self.pool.idle_run(number)) for number in resting]
        assert all(num_resting)
        assert sum(num_resting) + self.cache.num_cached_pages >= self.pool.num_idle
        assert self._fills.keys() <= {request.id for request in requests}
        for request in requests:
            num_pages = len(request.pages) + request.num_released_pages
            assert request.num_computed_tokens <= request.num_covered_tokens
            assert request.num_covered_tokens <= num_pages * PAGE_SIZE
            assert len(request.pages) <= self.max_pages
            assert len(request.cross_pages) == request.num_cross_pages
            num_released = request.num_released_pages
            assert num_released <= self._kept.num_released(request.num_computed_tokens)
            assert request.num_sealed_pages <= request.num_computed_tokens // PAGE_SIZE
            if self.cache.has(request.sealed_node):
                num_sealed = request.num_sealed_pages
                contents = request.contents(0, num_sealed)
                known, _ = self.cache.find(request.salt, contents, num_sealed)
                assert len(known) == num_sealed
                first = self._kept.num_sink_pages
                del known[first : first + num_released]
                assert known == request.pages[: len(known)].tolist()
            else:
                assert num_released or not (self._uses_cache and request.num_sealed_pages)

    def _add(self, request: Request, pages: list[int]) -> None:
        request.pages.extend(pages)
        num_pages = len(request.pages) + request.num_released_pages
        request.num_covered_tokens = num_pages * PAGE_SIZE

    def _give_back(self, request: Request) -> None:
        self.pool.release(reversed(request.cross_pages))
        self.pool.release(reversed(request.pages))
        del request.cross_pages[:]
        del request.pages[:]
        request.num_released_pages = request.num_covered_tokens = 0
        request.num_sealed_pages, request.sealed_node = 0, None

    def _num_missing(self, request: Request, num_tokens: int) -> int:
        """Returns how many pages it lacks for `num_tokens` tokens, or for as many as it may
        hold."""
        num_more = min(-(-num_tokens // PAGE_SIZE) - request.num_released_pages, self.max_pages)
        return num_more - len(request.pages)

    def _next_key(self, request: Request) -> PageKey | None:
        """Returns the key of the page after the sealed ones, or None where no other request could
        use it."""
        index, node = request.num_sealed_pages, request.sealed_node
        if (index + 1) * PAGE_SIZE > len(request.token_ids):
            return None
        if index and not self.cache.has(node):
            return None
        content = request.contents(index, index + 1)[0]
        return request.salt if node is None else node, content

    def _note_next(self, request: Request, key: PageKey | None) -> None:
        if key is not None and key not in self._filled_by:
            self._filled_by[key] = request
            self._fills[request.id] = key

    def _publish(self, key: PageKey) -> bool:
        """Seals the pages of the request that has filled this page. Returns False if no request
        has."""
        owner = self._filled_by.get(key)
        if owner is None:
            return False
        if isinstance(owner, _RestingRun):
            self._seal_resting(owner)
            return True
        if owner.num_computed_tokens // PAGE_SIZE == owner.num_sealed_pages:
            return False
        self.seal(owner)
        return True

    def _rest(self, request: Request) -> bool:
        """Makes idle the pages that a request has filled since it was sealed, findable by the first
        one. Returns False and changes nothing where that page cannot be found or others have it as
        well."""
        start, end = request.num_sealed_pages, request.num_computed_tokens // PAGE_SIZE
        if not self._uses_cache or start == end:
            return False
        key = self._fills.get(request.id) or self._next_key(request)
        if key is None or self._filled_by.get(key, request) is not request:
            return False
        if isinstance(key[0], int) and not self.cache.has(key[0]):
            return False
        if self.cache.child(key) is not None:
            return False
        self._fills.pop(request.id, None)
        place = slice(start - request.num_released_pages, end - request.num_released_pages)
        number = self.pool.rest(request.pages[place])
        del request.pages[place]
        resting = _RestingRun(number, key, request.contents(start, end))
        self._filled_by[key] = self._resting[number] = resting
        return True

    def _seal_resting(self, resting: _RestingRun) -> None:
        """Puts the rest of the run into the cache. Pages whose content is already there are
        dropped."""
        del self._filled_by[resting.key], self._resting[resting.number]
        own, parent = self.pool.idle_run(resting.number), resting.key[0]
        if isinstance(parent, int) and not self.cache.has(parent):
            self.pool.drop(own)
            return
        known, _ = self.cache.add(parent, resting.contents, own)
        self.pool.drop([page for page, other in zip(own, known, strict=True) if page != other])

    def _forget(self, number: int, pages: list[int]) -> Iterable[int]:
        """Forgets these pages of an idle run, whose content is lost. Returns the pages that are
        lost with them."""
        resting = self._resting.get(number)
        if resting is None:
            return self.cache.forget(pages)
        self.cache.stats.num_evictions += len(pages)
        if not self.pool.has_idle_run(number):
            del self._filled_by[resting.key], self._resting[number]
        return ()

    def _forget_next(self, request: Request) -> None:
        key = self._fills.pop(request.id, None)
        if key is not None:
            del self._filled_by[key]

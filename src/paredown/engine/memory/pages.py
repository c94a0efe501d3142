"""PagePool: who holds which page of the key-value storage, and whose content goes first.

A page is empty, held by one or more sequences, or idle: nobody holds it, but what it holds is kept
for whoever may ask for it again. Idle pages are free pages: when the empty ones are used up, the
one that has been idle for longest loses its content. A page may be written only by its one holder;
with more of them a writer takes a copy first.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

# Of a large pool this part is evicted at a time: a call for each page costs more than what they
# hold is worth (LOG.md).
_EVICTED_SHARE = 64


class PagePool:
    """`num_pages` pages, numbered from 0. Everything is O(1) per page that is asked for.

    `on_evict` is told of idle pages whose content is lost, and says of which others, held or idle,
    the content is worth nothing without it.
    """

    __slots__ = ("_counts", "_empty", "_idle", "_is_kept", "_on_evict", "num_pages")

    def __init__(
        self, num_pages: int, on_evict: Callable[[list[int]], Iterable[int]] | None = None
    ) -> None:
        assert num_pages >= 1
        self.num_pages = num_pages
        self._on_evict = on_evict
        # A stack: the page freed last is used first, so its bytes may still be in a cache.
        self._empty = list(range(num_pages - 1, -1, -1))
        # Longest idle first.
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._counts = [0] * num_pages
        self._is_kept = bytearray(num_pages)

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return len(self._empty) + len(self._idle)

    @property
    def num_idle(self) -> int:
        """Of the free ones, those whose content is kept."""
        return len(self._idle)

    def is_shared(self, page: int) -> bool:
        """Whether a page has several holders, so that none of them may write it."""
        return self._counts[page] > 1

    def allocate(self, num_pages: int) -> list[int] | None:
        """`num_pages` pages with one holder each, or None when fewer are free."""
        empty = self._empty
        if not num_pages:
            return []
        if num_pages > len(empty):
            if num_pages > self.num_free:
                return None
            num_evicted = max(num_pages - len(empty), self.num_pages // _EVICTED_SHARE)
            self._evict(min(num_evicted, len(self._idle)))
        pages = empty[: -num_pages - 1 : -1]
        del empty[-num_pages:]
        counts = self._counts
        for page in pages:
            counts[page] = 1
        return pages

    def hold(self, pages: Iterable[int]) -> None:
        """One holder more for each page, which must be held or idle."""
        counts, idle = self._counts, self._idle
        for page in pages:
            if counts[page] == 0:
                del idle[page]
            counts[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """One holder less for each page. Of those that become idle the first is evicted first: give
        a sequence's pages last to first, since its later ones are of no use without the earlier."""
        counts, is_kept, idle, free = self._counts, self._is_kept, self._idle, self._empty.append
        for page in pages:
            assert counts[page], f"page {page} was freed twice"
            counts[page] -= 1
            if counts[page] == 0:
                if is_kept[page]:
                    idle[page] = None
                else:
                    free(page)

    def keep(self, pages: Iterable[int]) -> None:
        """The content of these held pages is to be kept when nobody holds them."""
        counts, is_kept = self._counts, self._is_kept
        for page in pages:
            assert counts[page]
            is_kept[page] = 1

    def check_integrity(self, holders: Iterable[Sequence[int]] | None = None) -> None:
        """Asserts that every page is in one state; and that `holders`, the pages of each sequence,
        are all who hold one."""
        unheld = [*self._empty, *self._idle]
        assert len(set(unheld)) == len(unheld) == self._counts.count(0)
        assert all(self._counts[page] == 0 for page in unheld)
        assert all(count >= 0 for count in self._counts)
        assert all(self._is_kept[page] for page in self._idle)
        assert not any(self._is_kept[page] for page in self._empty)
        if holders is not None:
            counts = [0] * self.num_pages
            for pages in holders:
                assert len(set(pages)) == len(pages), "a sequence holds a page once"
                for page in pages:
                    counts[page] += 1
            assert counts == self._counts

    def _evict(self, num_pages: int) -> None:
        pop = self._idle.popitem
        pages = [pop(last=False)[0] for _ in range(num_pages)]
        for page in pages:
            self._is_kept[page] = 0
        self._empty += pages
        if self._on_evict is not None:
            for other in self._on_evict(pages):
                self._drop(other)

    def _drop(self, page: int) -> None:
        """The content of this page is not to be kept any more."""
        self._is_kept[page] = 0
        if self._counts[page] == 0:
            del self._idle[page]
            self._empty.append(page)

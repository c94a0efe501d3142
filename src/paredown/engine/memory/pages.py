"""PagePool: tracks the holders of each KV-cache page, and the order in which idle pages are
evicted.

A page is empty, held by one or more sequences, or idle. An idle page has no holder, but its content
is kept for later requests. Idle pages count as free: once the empty ones are used up, the page that
has been idle longest loses its content. Only a sole holder may write a page; with several holders a
writer takes a copy first.

Pages that become idle together, such as those of a sequence that ends, form an idle run. A run is
kept and evicted as a whole where that costs others nothing. The model flushes the processor's
caches in every step, so the cost is in how much is touched per page (docs/log.md).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

# In a large pool, this share is evicted at a time, and a run of at most that many pages as a whole.
# A call per page would cost more than the content is worth (docs/log.md).
_EVICTED_SHARE = 64


class PagePool:
    """`num_pages` pages, numbered from 0. All operations are O(1) per page.

    `on_evict` gets the idle pages whose content is lost and the number of their run. It returns
    which other pages, held or idle, have content that is worthless without it.
    """

    __slots__ = (
        "_empty",
        "_idle_runs",
        "_is_kept",
        "_num_idle",
        "_num_runs",
        "_on_evict",
        "_states",
        "num_pages",
    )

    def __init__(
        self, num_pages: int, on_evict: Callable[[int, list[int]], Iterable[int]] | None = None
    ) -> None:
        assert num_pages >= 1
        self.num_pages = num_pages
        self._on_evict = on_evict
        # A stack: the page freed last is used first, since its bytes may still be cached.
        self._empty = list(range(num_pages - 1, -1, -1))
        # By number, longest idle first. Within a run, the page to be evicted first is last.
        self._idle_runs: OrderedDict[int, dict[int, None]] = OrderedDict()
        self._num_runs = self._num_idle = 0
        # By page: the number of holders, 0 if it is empty, or minus the number of its idle run.
        self._states = [0] * num_pages
        # For each held page: whether it becomes idle instead of empty once nobody holds it.
        self._is_kept = bytearray(num_pages)

    @property
    def num_free(self) -> int:
        """Returns the number of pages without a holder."""
        return len(self._empty) + self._num_idle

    @property
    def num_idle(self) -> int:
        """Returns the number of free pages whose content is kept."""
        return self._num_idle

    def is_shared(self, page: int) -> bool:
        """Returns whether a page has several holders, so that none of them may write it."""
        return self._states[page] > 1

    def allocate(self, num_pages: int) -> list[int] | None:
        """Returns `num_pages` pages with one holder each, or None when fewer are free."""
        empty = self._empty
        if not num_pages:
            return []
        if num_pages > len(empty):
            if num_pages > self.num_free:
                return None
            share = self.num_pages // _EVICTED_SHARE
            self._evict(max(num_pages - len(empty), min(share, self._num_idle)), share)
        pages = empty[: -num_pages - 1 : -1]
        del empty[-num_pages:]
        states = self._states
        for page in pages:
            states[page] = 1
        return pages

    def hold(self, pages: Iterable[int]) -> None:
        """Adds a holder to each page, which must be held or idle."""
        states = self._states
        for page in pages:
            if states[page] < 0:
                self._take(page)
                self._is_kept[page] = 1
            else:
                assert states[page], f"page {page} holds nothing"
            states[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Removes a holder from each page. The first page given is evicted first, so pass a
        sequence's pages last to first: later ones are useless without the earlier."""
        states, is_kept, free = self._states, self._is_kept, self._empty.append
        idle, state = list[int](), -self._num_runs - 1
        for page in pages:
            count = states[page]
            assert count > 0, f"page {page} was freed twice"
            if count > 1:
                states[page] = count - 1
            elif is_kept[page]:
                is_kept[page] = 0
                states[page] = state
                idle.append(page)
            else:
                states[page] = 0
                free(page)
        if idle:
            idle.reverse()
            self._add_run(idle)

    def rest(self, pages: Sequence[int]) -> int:
        """Makes idle some pages of a sequence, given first to last, each with one holder, and keeps
        their content. Returns the number of their run."""
        states, state = self._states, -self._num_runs - 1
        for page in pages:
            assert states[page] == 1
            states[page] = state
        return self._add_run(pages)

    def keep(self, pages: Iterable[int]) -> None:
        """Marks these held pages so that their content is kept once nobody holds them."""
        states, is_kept = self._states, self._is_kept
        for page in pages:
            assert states[page] > 0
            is_kept[page] = 1

    def drop(self, pages: Iterable[int]) -> int:
        """Gives up the content of these pages, held or idle. Returns how many of them were idle."""
        num_idle = self._num_idle
        for page in pages:
            self._is_kept[page] = 0
            if self._states[page] < 0:
                self._take(page)
                self._empty.append(page)
        return num_idle - self._num_idle

    def has_idle_run(self, number: int) -> bool:
        """Returns whether any page of a run is left."""
        return number in self._idle_runs

    def idle_run(self, number: int) -> list[int]:
        """Returns the remaining pages of a run in the order of its sequence."""
        return list(self._idle_runs.get(number, ()))

    def idle_pages(self) -> list[int]:
        """Returns the idle pages in the order of eviction."""
        return [page for run in self._idle_runs.values() for page in reversed(run)]

    def check_integrity(self, holders: Iterable[Sequence[int]] | None = None) -> None:
        """Asserts that every page is in one state and, if given, that `holders` (the pages of each
        sequence) accounts for every holder."""
        states = self._states
        idle = {page: -number for number, run in self._idle_runs.items() for page in run}
        assert len(idle) == self._num_idle == sum(map(len, self._idle_runs.values()))
        assert idle == {page: state for page, state in enumerate(states) if state < 0}
        assert all(self._idle_runs.values())
        empty = set(self._empty)
        assert len(empty) == len(self._empty)
        assert empty == {page for page, state in enumerate(states) if state == 0}
        assert not any(self._is_kept[page] for page in (*idle, *empty))
        if holders is not None:
            counts = [0] * self.num_pages
            for pages in holders:
                assert len(set(pages)) == len(pages), "a sequence holds a page once"
                for page in pages:
                    counts[page] += 1
            assert counts == [max(state, 0) for state in states]

    def _evict(self, num_pages: int, whole_run: int) -> None:
        """Evicts at least `num_pages` pages: whole runs, except that a run longer than `whole_run`
        loses only what is needed."""
        while num_pages > 0:
            # Pages that are lost with others are no longer idle, so fewer may be left than
            # requested.
            number, run = next(iter(self._idle_runs.items()))
            if len(run) <= max(num_pages, whole_run):
                del self._idle_runs[number]
                pages = list(reversed(run))
            else:
                pages = [run.popitem()[0] for _ in range(num_pages)]
            num_pages -= len(pages)
            self._num_idle -= len(pages)
            for page in pages:
                self._states[page] = 0
            self._empty += pages
            if self._on_evict is not None:
                num_pages -= self.drop(self._on_evict(number, pages))

    def _add_run(self, pages: Sequence[int]) -> int:
        self._num_runs += 1
        self._num_idle += len(pages)
        self._idle_runs[self._num_runs] = dict.fromkeys(pages)
        return self._num_runs

    def _take(self, page: int) -> None:
        """Removes a page from its idle run."""
        number = -self._states[page]
        run = self._idle_runs[number]
        del run[page]
        if not run:
            del self._idle_runs[number]
        self._states[page] = 0
        self._num_idle -= 1

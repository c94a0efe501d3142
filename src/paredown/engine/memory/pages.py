"""PagePool: who holds which page of the key-value storage, and whose content goes first.

A page is empty, held by one or more sequences, or idle: nobody holds it, but what it holds is kept
for whoever may ask for it again. Idle pages are free pages: when the empty ones are used up, the
one that has been idle for longest loses its content. A page may be written only by its one holder;
with more of them a writer takes a copy first.

Pages that become idle together, which are those of a sequence that ends, are an idle run: they are
kept and lose their content as a whole where that is no loss to others. Between two steps the model
takes the processor's caches, so that what is looked at for each page is what counts (docs/log.md).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

# Of a large pool this part is evicted at a time, and a run of at most so many pages as a whole: a
# call for each page costs more than what they hold is worth (docs/log.md).
_EVICTED_SHARE = 64


class PagePool:
    """`num_pages` pages, numbered from 0. Everything is O(1) per page that is asked for.

    `on_evict` is told of idle pages whose content is lost, and of the number of their run, and says
    of which others, held or idle, the content is worth nothing without it.
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
        # A stack: the page freed last is used first, so its bytes may still be in a cache.
        self._empty = list(range(num_pages - 1, -1, -1))
        # By number, longest idle first; of each the pages, that which loses its content first last.
        self._idle_runs: OrderedDict[int, dict[int, None]] = OrderedDict()
        self._num_runs = self._num_idle = 0
        # By page: how many hold it, 0 where it is empty, minus the number of the run it is idle in.
        self._states = [0] * num_pages
        # Of a held page: whether it becomes idle, not empty, when nobody holds it.
        self._is_kept = bytearray(num_pages)

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return len(self._empty) + self._num_idle

    @property
    def num_idle(self) -> int:
        """The number of free pages whose content is kept."""
        return self._num_idle

    def is_shared(self, page: int) -> bool:
        """Whether a page has several holders, so that none of them may write it."""
        return self._states[page] > 1

    def allocate(self, num_pages: int) -> list[int] | None:
        """`num_pages` pages with one holder each, or None when fewer are free."""
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
        """One holder more for each page, which must be held or idle."""
        states = self._states
        for page in pages:
            if states[page] < 0:
                self._take(page)
                self._is_kept[page] = 1
            else:
                assert states[page], f"page {page} holds nothing"
            states[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """One holder less for each page. Of those that become idle the first is evicted first: give
        a sequence's pages last to first, since its later ones are of no use without the earlier."""
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
        """Makes idle some pages of a sequence, first to last, that have one holder each, and keeps
        what they hold. Returns the number of their run."""
        states, state = self._states, -self._num_runs - 1
        for page in pages:
            assert states[page] == 1
            states[page] = state
        return self._add_run(pages)

    def keep(self, pages: Iterable[int]) -> None:
        """The content of these held pages is to be kept when nobody holds them."""
        states, is_kept = self._states, self._is_kept
        for page in pages:
            assert states[page] > 0
            is_kept[page] = 1

    def drop(self, pages: Iterable[int]) -> int:
        """The content of these pages, held or idle, is not to be kept any more. Returns how many of
        them were idle."""
        num_idle = self._num_idle
        for page in pages:
            self._is_kept[page] = 0
            if self._states[page] < 0:
                self._take(page)
                self._empty.append(page)
        return num_idle - self._num_idle

    def has_idle_run(self, number: int) -> bool:
        """Whether anything is left of a run."""
        return number in self._idle_runs

    def idle_run(self, number: int) -> list[int]:
        """What is left of a run, in the order of its sequence."""
        return list(self._idle_runs.get(number, ()))

    def idle_pages(self) -> list[int]:
        """In the order in which they are evicted."""
        return [page for run in self._idle_runs.values() for page in reversed(run)]

    def check_integrity(self, holders: Iterable[Sequence[int]] | None = None) -> None:
        """Asserts that every page is in one state; and that `holders`, the pages of each sequence,
        are all who hold one."""
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
        """At least `num_pages`; of a run all, or what is asked for where it is longer than
        `whole_run`."""
        while num_pages > 0:
            # What is lost with others is idle no more, so that fewer may be left than were asked.
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
        """Out of the run that it is idle in."""
        number = -self._states[page]
        run = self._idle_runs[number]
        del run[page]
        if not run:
            del self._idle_runs[number]
        self._states[page] = 0
        self._num_idle -= 1

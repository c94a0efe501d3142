"""PrefixCache: maps token prefixes to pages, so that a shared prefix is computed only once.

Full pages form a chain, and pages that became full together form a run. A run is found by the node
before it (or the salt, at the start) and the tokens of its first page; its other pages follow. A
node stands for a page and everything before it and is never reused, so a hit has the same sequence
from the start. Hits compare tokens, not hashes, so sequences with colliding hashes stay apart.
(This is vLLM's automatic prefix caching, but exact.)

A request that holds a page of a chain also holds those before it and releases them last to first.
The pool therefore evicts the end of a chain, and every remaining node can be reached. Where
requests give up pages behind their window, the pool may evict one in the middle; what follows it is
then forgotten too.

The model flushes the processor's caches in every step, so each touched object costs a memory
access. There are far fewer runs than pages (benchmarks/prefix_cache.py).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

# The distance between the first nodes of two runs.
_MAX_PAGES: Final = 1 << 32

# The key of a page: the node before it, or the salt, and its content.
PageKey = tuple[int | str, Hashable]


class PageContents(Protocol):
    """The content of consecutive pages of a sequence."""

    def __getitem__(self, index: int, /) -> Hashable: ...


@dataclass(slots=True)
class PrefixCacheStats:
    """Counts since the start. A query is a request that starts or restarts. Of its tokens, the last
    never comes from the cache, because its logits are needed."""

    num_queries: int = 0
    num_hits: int = 0
    num_queried_tokens: int = 0
    num_hit_tokens: int = 0
    num_evictions: int = 0

    def note(self, num_tokens: int, num_hit_tokens: int) -> None:
        self.num_queries += 1
        self.num_hits += num_hit_tokens > 0
        self.num_queried_tokens += num_tokens
        self.num_hit_tokens += num_hit_tokens


@dataclass(slots=True, eq=False)
class _Run:
    """Consecutive pages. Page i holds `contents[num_skipped + i]` and has the node `first_node +
    i`; `key` is the first one's."""

    first_node: int
    key: PageKey
    pages: list[int]
    contents: PageContents
    num_skipped: int
    # The runs that follow a node of this run, without its own pages. Most nodes have none.
    branches: dict[int, set["_Run"]] | None = None

    @property
    def parent(self) -> int | str:
        return self.key[0]


class PrefixCache:
    """An index over the pages of a PagePool, whose `on_evict` must call `forget`."""

    __slots__ = ("_first_runs", "_num_cached", "_num_runs", "_page_runs", "_runs", "stats")

    def __init__(self, num_pages: int) -> None:
        # By page; None for a page that is not in the cache.
        self._page_runs: list[_Run | None] = [None] * num_pages
        # By number, which is a run's first node divided by _MAX_PAGES.
        self._runs: dict[int, _Run] = {}
        # By the node or salt before a run and the content of its first page.
        self._first_runs: dict[PageKey, _Run] = {}
        self._num_runs = self._num_cached = 0
        self.stats = PrefixCacheStats()

    @property
    def num_cached_pages(self) -> int:
        return self._num_cached

    def has(self, node: int | None) -> bool:
        """Returns whether a node's page, and so every page before it, is still in the cache."""
        if node is None:
            return False
        run = self._runs.get(node // _MAX_PAGES)
        return run is not None and node % _MAX_PAGES < len(run.pages)

    def page(self, node: int) -> int:
        """Returns the page of a node that is in the cache."""
        return self._runs[node // _MAX_PAGES].pages[node % _MAX_PAGES]

    def begins_with(self, key: PageKey) -> bool:
        """Returns whether the page with this key is known, for a key with a salt."""
        return key in self._first_runs

    def child(self, key: PageKey) -> int | None:
        """Returns the node of the page with this key, or None."""
        parent, content = key
        if isinstance(parent, int):
            run, place = self._runs.get(parent // _MAX_PAGES), parent % _MAX_PAGES + 1
            if run is None or place > len(run.pages):
                return None
            if place < len(run.pages) and run.contents[run.num_skipped + place] == content:
                return parent + 1
            if not run.branches:
                return None
        found = self._first_runs.get(key)
        return None if found is None else found.first_node

    def find(
        self, salt: str, contents: PageContents, max_pages: int
    ) -> tuple[list[int], int | None]:
        """Returns the pages of the longest known prefix, at most `max_pages`, and the node of the
        last one. `contents[i]` is the content of the sequence's page i. The pages are not held yet.
        """
        pages: list[int] = []
        node: int | None = None
        while len(pages) < max_pages:
            found = self.child((salt if node is None else node, contents[len(pages)]))
            if found is None:
                break
            # Takes this page and those behind it in its run.
            run, place = self._runs[found // _MAX_PAGES], found % _MAX_PAGES
            pages.append(run.pages[place])
            while (
                (place := place + 1) < len(run.pages)
                and len(pages) < max_pages
                and run.contents[run.num_skipped + place] == contents[len(pages)]
            ):
                pages.append(run.pages[place])
            node = run.first_node + place - 1
        return pages, node

    def add(
        self, parent: int | str, contents: PageContents, pages: list[int]
    ) -> tuple[list[int], int]:
        """Records the content of full pages, the first after `parent` and each after the one
        before. Returns the pages to use, which differ where another request has computed the same
        content, and the node of the last one."""
        known: list[int] = []
        for index in range(len(pages)):
            key = (parent, contents[index])
            found = self.child(key)
            if found is None:
                new = pages[index:]
                return known + new, self._add_run(key, contents, index, new)
            known.append(self.page(found))
            parent = found
        assert isinstance(parent, int)
        return known, parent

    def forget(self, pages: Sequence[int]) -> set[int]:
        """Forgets these pages, whose content is lost. Returns the pages after them, which can no
        longer be found and are forgotten too."""
        page_runs, lost = self._page_runs, set[int]()
        index, end = 0, len(pages)
        while index < end:
            page = pages[index]
            run = page_runs[page]
            if run is None:  # it followed a page that is forgotten
                index += 1
            elif run.pages[-1] != page or run.branches:
                lost |= self._cut(run, run.pages.index(page))
                index += 1
            else:
                index += self._cut_end(run, pages[index : index + len(run.pages)])
        lost.difference_update(pages)
        num_evicted = len(pages) + len(lost)
        self._num_cached -= num_evicted
        self.stats.num_evictions += num_evicted
        return lost

    def _add_run(
        self, key: PageKey, contents: PageContents, num_skipped: int, pages: list[int]
    ) -> int:
        """Returns the node of its last page."""
        self._num_runs += 1
        first_node = self._num_runs * _MAX_PAGES
        run = _Run(first_node, key, pages, contents, num_skipped)
        self._runs[self._num_runs] = self._first_runs[key] = run
        if isinstance(run.parent, int):
            before = self._runs[run.parent // _MAX_PAGES]
            if before.branches is None:
                before.branches = {}
            before.branches.setdefault(run.parent, set()).add(run)
        for page in pages:
            assert self._page_runs[page] is None, f"page {page} holds something else"
            self._page_runs[page] = run
        self._num_cached += len(pages)
        return first_node + len(pages) - 1

    def _cut_end(self, run: _Run, pages: Sequence[int]) -> int:
        """Forgets those of these pages that end a run without branches, last to first, in the order
        of release; at least the first of them."""
        num_pages = len(pages)
        if run.pages[: -num_pages - 1 : -1] != pages:
            num_pages = 1
        for page in pages[:num_pages]:
            self._page_runs[page] = None
        del run.pages[-num_pages:]
        if not run.pages:
            self._drop(run)
        return num_pages

    def _cut(self, run: _Run, place: int) -> set[int]:
        """Forgets a run's pages from this place on, and all pages after them."""
        lost, ends = set[int](), [(run, place)]
        while ends:
            run, place = ends.pop()
            lost.update(run.pages[place:])
            for page in run.pages[place:]:
                self._page_runs[page] = None
            del run.pages[place:]
            branches = run.branches or {}
            for node in [one for one in branches if one - run.first_node >= place]:
                ends += [(branch, 0) for branch in branches.pop(node)]
            if not run.pages:
                self._drop(run)
        return lost

    def _drop(self, run: _Run) -> None:
        """Forgets a run without any pages left."""
        del self._runs[run.first_node // _MAX_PAGES]
        del self._first_runs[run.key]
        if isinstance(run.parent, str):
            return
        before = self._runs.get(run.parent // _MAX_PAGES)
        if before is not None and before.branches and run.parent in before.branches:
            branches = before.branches[run.parent]
            branches.remove(run)
            if not branches:
                del before.branches[run.parent]

    def chain(self, page: int) -> list[int]:
        """Returns all pages from the start of a cached page's sequence up to it."""
        run, pages = self._page_runs[page], list[int]()
        assert run is not None
        node: int | str = run.first_node + run.pages.index(page)
        while isinstance(node, int):
            run = self._runs[node // _MAX_PAGES]
            pages[:0] = run.pages[: node % _MAX_PAGES + 1]
            node = run.parent
        return pages

    def check_integrity(self) -> None:
        """Asserts that the tables agree and that every page can be reached from a salt."""
        places: list[tuple[int, _Run]] = []
        for number, run in self._runs.items():
            assert run.pages
            assert run.first_node == number * _MAX_PAGES
            assert self._first_runs[run.parent, run.contents[run.num_skipped]] is run
            assert isinstance(run.parent, str) or self.has(run.parent)
            assert all(map(self.has, run.branches or ()))
            places += [(page, run) for page in run.pages]
        by_page = dict(places)
        assert len(by_page) == len(places) == self._num_cached
        assert self._page_runs == [by_page.get(page) for page in range(len(self._page_runs))]
        assert len(self._first_runs) == len(self._runs)
        followers = [one for run in self._runs.values() for one in (run.branches or {}).items()]
        assert all(one.parent == node for node, runs in followers for one in runs)
        num_first = sum(isinstance(run.parent, str) for run in self._runs.values())
        assert sum(len(runs) for _, runs in followers) == len(self._runs) - num_first

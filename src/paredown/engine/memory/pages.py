"""PagePool: which pages of the key-value storage are free."""


class PagePool:
    """`num_pages` pages, numbered from 0; each has at most one owner. O(1) per page."""

    def __init__(self, num_pages: int) -> None:
        assert num_pages >= 1
        self.num_pages = num_pages
        # A stack: the page freed last is used first, so its bytes may still be in a cache.
        self._free = list(range(num_pages - 1, -1, -1))
        self._used = bytearray(num_pages)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self, num_pages: int) -> list[int] | None:
        """`num_pages` pages, or None (and nothing taken) when fewer are free."""
        if num_pages > len(self._free):
            return None
        pages = [self._free.pop() for _ in range(num_pages)]
        for page in pages:
            self._used[page] = 1
        return pages

    def free(self, pages: list[int]) -> None:
        for page in pages:
            assert self._used[page], f"page {page} was freed twice"
            self._used[page] = 0
            self._free.append(page)

    def check_integrity(self) -> None:
        """Asserts that every page is either free, once, or used."""
        assert len(set(self._free)) == len(self._free)
        assert all(not self._used[page] for page in self._free)
        assert sum(self._used) + len(self._free) == self.num_pages

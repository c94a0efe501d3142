"""PrefixCache: which page holds which tokens, so that a prefix computed once is computed once.

Full pages form a chain: a page's key is (the node before it, the tokens in it), and the first
one's is (the salt, its tokens). A node is a number that is never used again, so a key stands for
the whole sequence from its start. It is the keys that are compared on a hit, not their hashes:
sequences whose hashes collide are told apart. (vLLM's automatic prefix caching, but exact.)

Whoever holds a page of a chain holds those before it, and gives them back last to first. So the
pool evicts the end of a chain, and every node that is left can be reached. Where requests give up
pages behind their window it may evict one in the middle: what follows it is forgotten, too.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count


@dataclass(slots=True)
class PrefixCacheStats:
    """Since the start. A query is a request that starts, or starts again, to run; of its wanted
    tokens the last is never taken from the cache, since its logits are needed."""

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


class PrefixCache:
    """An index over the pages of a PagePool, whose `on_evict` must be `forget`."""

    __slots__ = ("_children", "_keys", "_nodes", "_numbers", "_pages", "stats")

    def __init__(self, num_pages: int) -> None:
        self._pages: dict[tuple[Hashable, Hashable], int] = {}
        # By page; None where a page is not in the cache.
        self._keys: list[tuple[Hashable, Hashable] | None] = [None] * num_pages
        self._nodes: list[int | None] = [None] * num_pages
        # The pages whose keys begin with a node; every node has an entry.
        self._children: dict[int, set[int]] = {}
        self._numbers = count()
        self.stats = PrefixCacheStats()

    @property
    def num_cached_pages(self) -> int:
        return len(self._pages)

    def node(self, page: int) -> int | None:
        """What the key of the page after this one begins with."""
        return self._nodes[page]

    def has(self, node: int | None) -> bool:
        """Whether a node's page is still in the cache, and so all before it."""
        return node in self._children

    def child(self, parent: Hashable, content: Hashable) -> int | None:
        """The page with this content after `parent`, a node or a salt."""
        return self._pages.get((parent, content))

    def find(self, salt: str, content: Callable[[int], Hashable], max_pages: int) -> list[int]:
        """The pages of the longest known prefix, at most `max_pages`; `content(i)` is what the
        i-th page of the sequence holds. They are not held yet."""
        found: list[int] = []
        get, nodes, parent = self._pages.get, self._nodes, None
        for index in range(max_pages):
            page = get((salt if parent is None else parent, content(index)))
            if page is None:
                break
            found.append(page)
            parent = nodes[page]
        return found

    def add(self, parent: Hashable, content: Hashable, page: int) -> int:
        """Notes what a full page holds, after `parent`. Returns the page that is known to hold it:
        another one where somebody else has computed the same."""
        key = (parent, content)
        known = self._pages.setdefault(key, page)
        if known == page:
            assert self._keys[page] is None, f"page {page} holds something else"
            self._keys[page] = key
            node = self._nodes[page] = next(self._numbers)
            self._children[node] = set()
            if isinstance(parent, int):
                self._children[parent].add(page)
        return known

    def forget(self, page: int) -> list[int]:
        """The page's content is lost. Returns the pages after it, which cannot be found any more
        and are forgotten with it."""
        key = self._keys[page]
        assert key is not None
        if isinstance(key[0], int):
            self._children[key[0]].remove(page)
        lost = list(self._take_out(page))
        for child in lost:
            lost += self._take_out(child)
        self.stats.num_evictions += 1 + len(lost)
        return lost

    def _take_out(self, page: int) -> set[int]:
        key, node = self._keys[page], self._nodes[page]
        assert key is not None
        assert node is not None
        del self._pages[key]
        self._keys[page] = self._nodes[page] = None
        return self._children.pop(node)

    def check_integrity(self) -> None:
        """Asserts that both directions agree and that every page can be reached from a salt."""
        assert len(self._pages) == sum(key is not None for key in self._keys)
        alive = {node for node in self._nodes if node is not None}
        assert len(alive) == len(self._pages)
        for key, page in self._pages.items():
            assert self._keys[page] == key
            assert isinstance(key[0], str) or key[0] in alive
            assert isinstance(key[0], str) or page in self._children[key[0]]
        assert self._children.keys() == alive

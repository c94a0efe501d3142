from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.memory.pages import PagePool
from paredown.engine.memory.prefix_cache import PrefixCache


@dataclass(frozen=True)
class Colliding:
    """Contents that differ and whose hashes do not."""

    name: str

    def __hash__(self) -> int:
        return 7


def fill(cache: PrefixCache, pool: PagePool, salt: str, contents: list[object]) -> list[int]:
    """A sequence's pages as the scheduler keeps them: known ones shared, the others its own."""
    pages, node = cache.find(salt, contents, len(contents))
    pool.hold(pages)
    for content in contents[len(pages) :]:
        fresh = pool.allocate(1)
        assert fresh is not None
        known, node = cache.add(salt if node is None else node, [content], fresh)
        assert known == fresh
        pool.keep(fresh)
        pages += fresh
    return pages


def make(num_pages: int = 16) -> tuple[PrefixCache, PagePool]:
    cache = PrefixCache(num_pages)
    return cache, PagePool(num_pages, on_evict=lambda _, pages: cache.forget(pages))


def find(cache: PrefixCache, salt: str, contents: list[object]) -> list[int]:
    return cache.find(salt, contents, len(contents))[0]


def test_the_longest_known_prefix_is_found():
    cache, pool = make()
    pages = fill(cache, pool, "", ["a", "b", "c"])
    assert find(cache, "", ["a", "b", "c"]) == pages
    assert find(cache, "", ["a", "b", "x", "c"]) == pages[:2]
    assert find(cache, "", ["b", "c"]) == []
    assert cache.find("", ["a", "b"], 1)[0] == pages[:1]
    assert find(cache, "other", ["a"]) == []


def test_equal_hashes_give_no_wrong_page():
    cache, pool = make()
    a, b, c = Colliding("a"), Colliding("b"), Colliding("c")
    first, second = fill(cache, pool, "", [a, b]), fill(cache, pool, "", [b, a])
    assert not set(first) & set(second)
    assert find(cache, "", [a, b]) == first
    assert find(cache, "", [b, a]) == second
    assert find(cache, "", [a, a]) == first[:1]
    assert find(cache, "", [c]) == []
    pool.release(reversed(first))
    assert pool.allocate(14) is not None
    assert find(cache, "", [a, b]) == []
    assert find(cache, "", [b, a]) == second
    cache.check_integrity()


def test_a_page_that_is_evicted_and_filled_again_does_not_bring_back_its_children():
    """Nodes are never used again: what once followed a page cannot follow its successor."""
    cache, pool = make(num_pages=2)
    parent = fill(cache, pool, "", ["a", "b"])
    pool.release(reversed(parent))
    (page,) = pool.allocate(1)
    assert find(cache, "", ["a", "b"]) == parent[:1], "the end of the chain goes first"
    (other,) = pool.allocate(1)
    assert find(cache, "", ["a"]) == []
    cache.add("", ["a"], [other])
    assert find(cache, "", ["a", "b"]) == [other]
    assert page != other


def test_whoever_computed_it_first_is_known_for_it():
    cache, pool = make()
    first, second = pool.allocate(2)
    known, node = cache.add("", ["a"], [first])
    assert known == [first]
    assert cache.add("", ["a"], [second]) == ([first], node)
    assert cache.page(node) == first
    with pytest.raises(AssertionError, match="holds something else"):
        cache.add("", ["b"], [first])


SEQUENCES = st.lists(st.sampled_from("ab"), min_size=1, max_size=5)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("fill"), st.sampled_from(["", "x"]), SEQUENCES),
        st.tuples(st.just("release"), st.integers(0, 9)),
        st.tuples(st.just("take"), st.integers(1, 4)),
    ),
    max_size=40,
)


@given(OPERATIONS)
def test_held_pages_stay_and_chains_are_evicted_from_their_ends(operations):
    cache, pool = make(num_pages=12)
    held: list[tuple[str, list[str], list[int]]] = []
    for operation, *arguments in operations:
        if operation == "fill" and len(arguments[1]) <= pool.num_free:
            salt, contents = arguments
            held.append((salt, contents, fill(cache, pool, salt, contents)))
        elif operation == "release" and held:
            pool.release(reversed(held.pop(arguments[0] % len(held))[2]))
        elif operation == "take":
            pages = pool.allocate(arguments[0])
            if pages is not None:
                pool.release(pages)
        pool.check_integrity(pages for _, _, pages in held)
        cache.check_integrity()
        for salt, contents, pages in held:
            assert find(cache, salt, contents) == pages, "pages in use are locked"
    assert cache.num_cached_pages == pool.num_idle + len({p for _, _, ps in held for p in ps})

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.memory.pages import PagePool

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["allocate", "hold", "release", "keep"]), st.integers(0, 12)),
    max_size=80,
)


@given(st.integers(1, 40), OPERATIONS)
def test_random_operations_never_share_or_lose_a_page(num_pages, operations):
    """Against a model: who holds what, which pages are kept, in which order they became idle."""
    evicted: list[int] = []

    def note(number: int, pages: list[int]) -> list[int]:
        evicted.extend(pages)
        return []

    pool = PagePool(num_pages, on_evict=note)
    held: list[list[int]] = []
    kept: set[int] = set()
    idle: list[int] = []
    for operation, number in operations:
        if operation == "allocate":
            num_free, num_empty = pool.num_free, pool.num_free - pool.num_idle
            evicted.clear()
            pages = pool.allocate(number)
            assert (pages is None) == (number > num_free)
            if pages is None:
                assert not evicted
                continue
            assert len(set(pages)) == len(pages) == number
            assert evicted == idle[: max(number - num_empty, 0)], "the longest idle first"
            del idle[: len(evicted)]
            kept -= set(evicted)
            held.append(pages)
        elif operation == "hold" and (held or idle):
            pages = [*(held[number % len(held)] if held else []), *idle[:number]]
            pool.hold(pages)
            idle = [page for page in idle if page not in pages]
            held.append(pages)
        elif operation == "release" and held:
            pages = held.pop(number % len(held))
            pool.release(pages)
            others = {page for one in held for page in one}
            idle += [page for page in pages if page in kept and page not in others]
        elif operation == "keep" and held:
            pages = held[number % len(held)][:number]
            pool.keep(pages)
            kept.update(pages)
        pool.check_integrity(held)
        owners = [page for pages in held for page in pages]
        assert pool.num_free == num_pages - len(set(owners))
        assert pool.idle_pages() == idle
        for page in set(owners):
            assert pool.is_shared(page) == (owners.count(page) > 1)


def test_pages_that_are_worth_nothing_without_an_evicted_one_are_dropped_held_or_idle():
    pool = PagePool(4, on_evict=lambda _, pages: [1, 2] if 0 in pages else [])
    pages = pool.allocate(4)
    pool.keep([0, 1, 2])
    pool.release([0, 1])
    assert (pool.num_idle, pool.num_free) == (2, 2)
    assert sorted(pool.allocate(1)) == [0] or pool.num_idle == 0
    pool.check_integrity()
    assert pool.num_free == 1
    pool.release([2])
    assert (pool.num_idle, pool.num_free) == (0, 2), "page 2 was held, and is not kept after it"
    assert len(pages) == 4


def test_freeing_twice_is_caught():
    pool = PagePool(2)
    pages = pool.allocate(1)
    pool.release(pages)
    with pytest.raises(AssertionError, match="twice"):
        pool.release(pages)

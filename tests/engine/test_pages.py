import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.memory.pages import PagePool


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60),
)
def test_random_operations_never_share_or_lose_a_page(num_pages, operations):
    pool, held = PagePool(num_pages), []
    for is_allocation, count in operations:
        if is_allocation:
            free_before = pool.num_free
            pages = pool.allocate(count)
            assert (pages is None) == (count > free_before)
            if pages is not None:
                assert len(pages) == count
                held.append(pages)
        elif held:
            pool.free(held.pop(count % len(held)))
        pool.check_integrity()
        owned = [page for pages in held for page in pages]
        assert len(owned) == len(set(owned)) == num_pages - pool.num_free
        assert all(0 <= page < num_pages for page in owned)


def test_freeing_twice_is_caught():
    pool = PagePool(2)
    pages = pool.allocate(1)
    pool.free(pages)
    with pytest.raises(AssertionError, match="twice"):
        pool.free(pages)

"""The store keeps what was read last, within its bounds, and for its owner alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.serve.errors import HttpError
from paredown.serve.response_store import ResponseStore, StoredResponse


def response(number: int, size: int = 10, owner: str = "") -> StoredResponse:
    return StoredResponse(id=f"resp_{number}", owner=owner, text="x" * size, items=(), messages=())


def test_those_read_longest_ago_go_first() -> None:
    store = ResponseStore(max_responses=2)
    for number in (1, 2):
        store.put(response(number))
    store.get("resp_1", "")
    store.put(response(3))
    assert store.get("resp_1", "").id == "resp_1"
    with pytest.raises(HttpError, match="resp_2"):
        store.get("resp_2", "")


def test_a_response_is_its_owners_alone() -> None:
    store = ResponseStore()
    store.put(response(1, owner="ann"))
    for owner in ("", "bob"):
        with pytest.raises(HttpError):
            store.get("resp_1", owner)
        with pytest.raises(HttpError):
            store.delete("resp_1", owner)
    store.delete("resp_1", "ann")
    assert (len(store), store.num_bytes) == (0, 0)


@given(st.lists(st.integers(0, 200), max_size=20))
def test_there_are_never_more_bytes_than_may_be(sizes: list[int]) -> None:
    store = ResponseStore(max_responses=5, max_bytes=400)
    for number, size in enumerate(sizes):
        store.put(response(number, size))
        kept = [one for one, _ in store._stored.values()]
        assert store.num_bytes == sum(one.num_bytes for one in kept) <= 400
        assert len(kept) <= 5
        assert kept[-1].id == f"resp_{number}"


def test_one_that_is_too_large_drops_no_others() -> None:
    store = ResponseStore(max_bytes=400)
    store.put(response(1))
    store.put(response(2, size=401))
    assert store.get("resp_1", "").id == "resp_1"

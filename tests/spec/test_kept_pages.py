"""Pages that are kept: against the tokens that the next ones see, one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.specs import gated
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE

SIZES = st.tuples(st.integers(0, 40), st.integers(1, 70))


def pages_seen(kept: KeptPages, position: int) -> set[int]:
    """By the token at that position, its own among them."""
    assert kept.window is not None
    return {
        key // PAGE_SIZE
        for key in range(position + 1)
        if key < kept.num_sink_tokens or position - key < kept.window
    }


def kept_by(kept: KeptPages, num_computed_tokens: int) -> set[int]:
    num_pages = -(-num_computed_tokens // PAGE_SIZE)
    first = kept.num_sink_pages + kept.num_released(num_computed_tokens)
    return {page for page in range(num_pages) if page < kept.num_sink_pages or page >= first}


@given(SIZES, st.integers(0, 300))
@settings(max_examples=100, deadline=None)
def test_what_later_tokens_see_is_kept_and_nothing_else(
    sizes: tuple[int, int], num_computed_tokens: int
) -> None:
    kept = KeptPages(num_sink_tokens=sizes[0], window=sizes[1])
    needed: set[int] = set()
    for position in range(num_computed_tokens, num_computed_tokens + 80):
        needed |= pages_seen(kept, position)
    there = set(range(-(-num_computed_tokens // PAGE_SIZE)))
    assert kept_by(kept, num_computed_tokens) == (needed & there) | {
        page for page in there if page < kept.num_sink_pages
    }


@given(SIZES, st.integers(0, 300), st.integers(1, 60))
@settings(max_examples=100, deadline=None)
def test_a_request_never_holds_more_than_its_most(
    sizes: tuple[int, int], num_computed_tokens: int, num_step_tokens: int
) -> None:
    """Pages are released before a step and taken for its tokens; some length needs them all."""
    kept = KeptPages(num_sink_tokens=sizes[0], window=sizes[1])

    def held(start: int) -> int:
        end_pages = -(-(start + num_step_tokens) // PAGE_SIZE)
        return end_pages - kept.num_released(start)

    most = kept.most_pages(num_step_tokens)
    assert most is not None
    assert held(num_computed_tokens) <= most
    assert kept.pages_of(num_computed_tokens + num_step_tokens, num_step_tokens) <= most
    far = 10 * (sizes[0] + sizes[1] + PAGE_SIZE)
    assert max(held(start) for start in range(far, far + PAGE_SIZE)) == most


@given(SIZES, st.integers(0, 300))
def test_pages_are_released_in_order_and_stay_released(
    sizes: tuple[int, int], num_computed_tokens: int
) -> None:
    kept = KeptPages(num_sink_tokens=sizes[0], window=sizes[1])
    now, later = (kept.num_released(num_computed_tokens + more) for more in (0, 1))
    assert 0 <= now <= later <= now + 1


@pytest.mark.parametrize("num_tokens", [1, 16, 17, 1000])
def test_without_a_window_all_pages_are_kept(num_tokens: int) -> None:
    kept = KeptPages.of(Context(spec=gated()))
    assert kept == KeptPages()
    assert kept.num_released(num_tokens) == 0
    assert kept.most_pages(64) is None
    assert kept.pages_of(num_tokens, 64) == -(-num_tokens // PAGE_SIZE)


def test_a_model_keeps_what_its_context_says() -> None:
    sinks = AttentionSinks(num_sink_tokens=4, window=28)
    assert KeptPages.of(Context(spec=gated(), sinks=sinks)) == KeptPages(
        num_sink_tokens=4, window=28
    )
    assert KeptPages.of(Context(spec=gated(sliding_window=9))) == KeptPages(window=9)
    mixed = gated(sliding_window=9, full_layers=(1,))
    assert KeptPages.of(Context(spec=mixed)) == KeptPages()

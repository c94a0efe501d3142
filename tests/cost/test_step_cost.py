"""Loads of steps: sums over what each token attends to, drawn as a mask."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.cost.step_cost import (
    StepLoad,
    chunk_kv_tokens,
    chunk_pairs,
    decode_load,
    prefill_load,
    prompts_load,
)

WINDOWS = st.lists(st.integers(1, 40), max_size=2, unique=True).map(lambda one: tuple(sorted(one)))


def mask(start: int, num_tokens: int, window: int | None) -> list[set[int]]:
    """By token the positions that it attends to."""
    return [
        {key for key in range(query + 1) if window is None or query - key < window}
        for query in range(start, start + num_tokens)
    ]


def load_of(num_requests: int, start: int, num_tokens: int, windows: tuple[int, ...]) -> StepLoad:
    whole = mask(start, num_tokens, None)
    windowed = [mask(start, num_tokens, window) for window in windows]
    return StepLoad(
        num_tokens=num_requests * num_tokens,
        num_logits=num_requests,
        num_requests=num_requests,
        attention_pairs=num_requests * sum(map(len, whole)),
        kv_tokens_read=num_requests * len(set().union(*whole)),
        windowed_pairs=tuple(num_requests * sum(map(len, one)) for one in windowed),
        windowed_kv_tokens_read=tuple(num_requests * len(set().union(*one)) for one in windowed),
    )


@given(st.integers(1, 5), st.integers(0, 60), st.integers(1, 60), WINDOWS)
@settings(max_examples=80, deadline=None)
def test_loads_are_those_of_a_mask(
    num_requests: int, start: int, num_tokens: int, windows: tuple[int, ...]
) -> None:
    decode = load_of(num_requests, start, 1, windows)
    assert decode_load(num_requests, start + 1, windows) == decode
    prompts = load_of(num_requests, start, num_tokens, windows)
    assert prompts_load(num_requests, num_tokens, start, windows) == replace(
        prompts, num_first_tokens=num_requests
    )
    assert prefill_load(num_tokens, start, windows) == prompts_load(1, num_tokens, start, windows)


@given(st.integers(0, 60), st.integers(1, 60), st.integers(1, 60), st.none() | st.integers(1, 70))
def test_a_chunk_cut_in_two_has_the_same_pairs_and_reads_no_less(
    start: int, first: int, second: int, window: int | None
) -> None:
    whole = chunk_pairs(start, first + second, window)
    assert whole == chunk_pairs(start, first, window) + chunk_pairs(start + first, second, window)
    read = chunk_kv_tokens(start, first, window) + chunk_kv_tokens(start + first, second, window)
    assert chunk_kv_tokens(start, first + second, window) <= read
    if window is not None and window >= start + first + second:
        assert whole == chunk_pairs(start, first + second)
        assert chunk_kv_tokens(start, first, window) == chunk_kv_tokens(start, first)


@given(st.integers(1, 5), st.integers(0, 60), st.integers(1, 60), WINDOWS)
@settings(max_examples=80, deadline=None)
def test_the_last_layer_attends_for_rows_of_logits_alone(
    num_requests: int, start: int, num_tokens: int, windows: tuple[int, ...]
) -> None:
    """Which are the last tokens of their chunks: each of them sees its whole chunk."""
    load = prompts_load(num_requests, num_tokens, start, windows)
    last = load.last_layer
    assert last.attention_pairs == num_requests * len(mask(start, num_tokens, None)[-1])
    assert last.kv_tokens_read == load.kv_tokens_read
    for own, whole in zip(last.windowed_pairs, load.windowed_pairs, strict=True):
        assert 0 < own <= whole
    for name in ("num_tokens", "num_logits", "num_requests", "num_first_tokens"):
        assert getattr(last, name) == getattr(load, name)
    assert last.asked_share == load.asked_share == 1 / num_tokens


def test_the_last_layer_of_a_step_without_logits_attends_to_nothing() -> None:
    load = replace(prefill_load(100, 50, (8,)), num_logits=0)
    assert load.asked_share == 0
    last = load.last_layer
    assert (last.attention_pairs, last.kv_tokens_read) == (0, 0)
    assert (last.windowed_pairs, last.windowed_kv_tokens_read) == ((0,), (0,))


@pytest.mark.parametrize("num_logits", [100, 101])
def test_a_step_that_asks_for_every_row_has_one_kind_of_layer(num_logits: int) -> None:
    load = replace(prefill_load(100, 50), num_logits=num_logits)
    assert load.last_layer is load


def test_what_the_last_layer_attends_to() -> None:
    load = prefill_load(100, 50)
    assert load.last_layer.attention_pairs == load.last_layer.kv_tokens_read == 150
    chunk = replace(load, num_logits=0)
    assert chunk.last_layer.attention_pairs == chunk.last_layer.kv_tokens_read == 0
    scored = replace(load, num_logits=100)
    assert scored.last_layer == scored
    decode = decode_load(8, 30)
    assert decode.last_layer == decode

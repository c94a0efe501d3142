"""What a token sees while a model runs: against masks drawn one position at a time."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.specs import gated, plain
from paredown.errors import ConfigError, UnsupportedError
from paredown.spec.attention_sinks import (
    MAX_SINK_TOKENS,
    MAX_STREAMED_TOKENS,
    AttentionSinks,
)
from paredown.spec.context import Context

SINKS = st.builds(AttentionSinks, num_sink_tokens=st.integers(1, 20), window=st.integers(1, 40))


def seen(position: int, window: int | None, num_sinks: int = 0) -> set[int]:
    """A token sees the sinks and the last of those before it, itself among them."""
    return {
        key
        for key in range(position + 1)
        if key < num_sinks or window is None or position - key < window
    }


@given(SINKS, st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_no_token_sees_more_than_is_kept(sinks: AttentionSinks, position: int) -> None:
    context = Context(spec=gated(), sinks=sinks)
    found = seen(position, context.layer_window(0), context.num_sink_tokens)
    assert len(found) == min(position + 1, sinks.num_kept_tokens)
    assert context.kept_window == sinks.window
    assert context.costed_spec.windows == (sinks.num_kept_tokens,)
    assert len(found) <= context.costed_spec.windows[0]
    assert context.max_request_tokens == MAX_STREAMED_TOKENS > context.spec.max_positions


@given(st.lists(st.none() | st.integers(1, 20), min_size=3, max_size=3), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_a_key_is_kept_as_long_as_one_layer_sees_it(
    windows: list[int | None], position: int
) -> None:
    spec = gated()
    layers = tuple(
        replace(layer, attention=replace(layer.attention, window=window))
        for layer, window in zip(spec.layers, windows, strict=True)
    )
    context = Context(spec=replace(spec, layers=layers))
    by_layer = [seen(position, context.layer_window(one)) for one in range(3)]
    assert [context.layer_window(one) for one in range(3)] == windows
    assert seen(position, context.kept_window) == set().union(*by_layer)
    assert context.num_sink_tokens == 0
    assert context.max_request_tokens == spec.max_positions
    assert context.costed_spec is context.spec


@pytest.mark.parametrize(("num_sinks", "window"), [(4, 60), (1, 63), (63, 1)])
def test_sinks_and_window_fill_what_the_model_knows(num_sinks: int, window: int) -> None:
    spec = gated(max_positions=64)
    Context(spec=spec, sinks=AttentionSinks(num_sink_tokens=num_sinks, window=window))
    more = AttentionSinks(num_sink_tokens=num_sinks, window=window + 1)
    with pytest.raises(ConfigError, match=rf"64 positions.*at most {64 - num_sinks} tokens"):
        Context(spec=spec, sinks=more)
    with pytest.raises(ConfigError, match="32 positions"):
        Context(
            spec=gated(max_positions=64, sliding_window=32),
            sinks=AttentionSinks(num_sink_tokens=num_sinks, window=window),
        )


def test_learned_positions_cannot_be_turned() -> None:
    with pytest.raises(UnsupportedError, match="rotary positions"):
        Context(spec=plain(), sinks=AttentionSinks(window=4))
    assert Context(spec=plain()).kept_window is None


@pytest.mark.parametrize(
    ("num_sinks", "window", "message"),
    [(0, 9, "number of"), (-1, 9, "number of"), (MAX_SINK_TOKENS + 1, 9, "512"), (4, 0, "window")],
)
def test_senseless_sinks_are_refused(num_sinks: int, window: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AttentionSinks(num_sink_tokens=num_sinks, window=window)
    AttentionSinks(num_sink_tokens=MAX_SINK_TOKENS, window=1)


def test_one_line_says_what_is_seen() -> None:
    words = AttentionSinks(num_sink_tokens=4, window=1020).arithmetic()
    assert "first 4" in words
    assert "last 1,020" in words
    assert AttentionSinks().num_kept_tokens == 1024

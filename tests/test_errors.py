"""Errors of users: one line, whatever is put into them."""

import pytest
from hypothesis import given

from drivers.hostile_text import is_safe, texts
from paredown.errors import CheckpointError, ConfigError, ParedownError, naming


@given(texts, texts, texts)
def test_every_message_is_one_safe_line_of_bounded_length(
    what: str, seen: str, remedy: str
) -> None:
    error = ConfigError(what, seen=seen, remedy=remedy)
    assert is_safe(str(error))
    assert len(str(error)) < 6_000
    assert str(error) == f"{error.what} (saw: {error.seen}). {error.remedy}"


@given(texts)
def test_a_place_is_named_once(place: str) -> None:
    with pytest.raises(CheckpointError) as caught, naming(place), naming(place):
        raise CheckpointError("it is damaged", seen=1, remedy="Get another.")
    assert is_safe(str(caught.value))
    if len(place) < 100:
        assert caught.value.what.endswith("it is damaged")
        assert caught.value.what.count("it is damaged") == 1


def test_an_error_made_of_another_says_the_same() -> None:
    first = ParedownError("a\x1b", seen=["\u202e"] * 100, remedy="b\n")
    second = ParedownError(first.what, seen=first.seen, remedy=first.remedy)
    assert str(first) == str(second)

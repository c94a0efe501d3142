"""JSON of strangers: its value, or one line about what is wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.json_text import MAX_DEPTH, JsonTextError, parse_json

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)


@given(JSON)
def test_json_is_read_as_python_reads_it(value: object) -> None:
    text = json.dumps(value)
    assert parse_json(text) == parse_json(text.encode()) == value


@given(st.binary())
def test_any_bytes_are_read_or_refused_in_one_line(data: bytes) -> None:
    line = ""
    try:
        parse_json(data)
    except JsonTextError as error:
        line = str(error)
    assert "\n" not in line


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_nesting_ends_at_a_depth() -> None:
    assert parse_json(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 500, 100_000):
        with pytest.raises(JsonTextError, match="nested more than 64 deep"):
            parse_json(nested(depth))


def test_width_is_no_depth() -> None:
    value = [[[1], {"a": []}]] * 1000
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{\n "a" 1}', "line 2, column 6: Expecting ':' delimiter"),
        (b"", "line 1, column 1: Expecting value"),
        (b'"\xff"', "byte 1 is not UTF-8"),
        (b"9" * 6000, "an integer has too many digits"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, says: str) -> None:
    with pytest.raises(JsonTextError) as caught:
        parse_json(data)
    assert str(caught.value) == says

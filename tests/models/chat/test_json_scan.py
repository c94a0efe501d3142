"""The end of a JSON value in a text that comes in pieces, against the json module."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.turns import cut
from paredown.models.chat.json_scan import JsonScan

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
places = st.lists(st.integers(0, 10_000), max_size=6)


def scanned(pieces: list[str]) -> tuple[JsonScan, int]:
    """Returns the scan and how many characters it read."""
    scan, num_read = JsonScan(), 0
    for piece in pieces:
        at = scan.read(piece, 0)
        num_read += at
        if at < len(piece):
            break
    return scan, num_read


def loads(text: str) -> bool:
    try:
        json.loads(text, parse_constant=int)  # NaN and Infinity are no JSON
    except ValueError:
        return False
    return True


@given(value=values, ascii_=st.booleans(), indent=st.none() | st.just(1), places=places)
def test_a_value_ends_where_it_ends_at_every_cut(
    value: object, ascii_: bool, indent: int | None, places: list[int]
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_, indent=indent)
    scan, num_read = scanned(cut(text + " x", places))
    assert scan.is_whole
    assert not scan.is_damaged
    assert num_read == len(text)


@given(
    value=values,
    at=st.integers(0, 100),
    instead=st.sampled_from([*'{}[]",:\\0-+.eu \n\t', "a", "\x01", "true", "nul", "é", ""]),
    places=places,
)
def test_changed_text_is_whole_only_if_it_is_json(
    value: object, at: int, instead: str, places: list[int]
) -> None:
    text = json.dumps(value)
    at %= len(text)
    text = text[:at] + instead + text[at + 1 :] + " "
    scan, num_read = scanned([text])
    if scan.is_whole:
        assert loads(text[:num_read])
    if scan.is_damaged:
        assert not loads(text)
    parts, num_of_parts = scanned(cut(text, places))
    assert (parts.is_whole, parts.is_damaged) == (scan.is_whole, scan.is_damaged)
    assert num_of_parts == num_read


@pytest.mark.parametrize(
    "text", ["01 ", "1. ", "-", "nul", "+1 ", "1e ", "[1,]", "{,}", '{"a" 1}', '{"a":1,}', "'a'"]
)
def test_what_is_no_json_is_never_whole(text: str) -> None:
    scan, _ = scanned([text])
    assert not scan.is_whole


def test_nesting_has_no_bound() -> None:
    scan, num_read = scanned(["[" * 100_000 + "]" * 100_000 + "x"])
    assert scan.is_whole
    assert num_read == 200_000

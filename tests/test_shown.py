"""A stranger's value on one line: escaped, cut, with bounded work."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.hostile_text import HOSTILE, is_safe, texts
from paredown.shown import MAX_CHARS, quoted, shown, shown_answer, shown_list

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.binary(), texts),
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(texts, inner), st.tuples(inner), st.lists(inner).map(tuple)
    ),
    max_leaves=30,
)


@given(VALUES, st.integers(60, 2000))
def test_any_value_is_one_safe_line_of_bounded_length(value: object, max_chars: int) -> None:
    for text in (shown(value, max_chars), quoted(value, max_chars)):
        assert is_safe(text)
        assert len(text) <= max_chars
        assert shown(text, max_chars) == text


@pytest.mark.parametrize(
    "value",
    [None, True, 1, -1.5, float("inf"), b"a\x00", "it's", [], [1, "a"], (1,), (1, 2), {}, {"a": 1}],
)
def test_usual_values_are_as_python_writes_them(value: object) -> None:
    assert quoted(value) == repr(value)
    assert shown(value) == str(value)


def test_ordinary_letters_stay() -> None:
    text = "naïve 日本語 עברית العربية ½ × – 🙂"
    assert shown(text) == text


def test_escapes_are_pythons() -> None:
    assert shown("\x1b[31m\n\u202e\U000e0041\ud800") == r"\x1b[31m\n\u202e\U000e0041\ud800"


def test_a_long_text_keeps_both_ends() -> None:
    found = shown("begin" + "x" * 10_000 + "end")
    assert found.startswith("begin")
    assert found.endswith("end")
    assert "9,708 characters left out" in found
    assert len(found) == MAX_CHARS


def test_only_a_part_of_a_container_is_looked_at() -> None:
    """Ten lists in ten lists, eleven times over: 10^11 entries in a few objects."""
    value: object = "x"
    for _ in range(11):
        value = [value] * 10
    start_s = time.monotonic()
    assert "of them" in shown(value)
    assert quoted({"a": value}).startswith("{'a': [[")
    assert time.monotonic() - start_s < 5


def test_lists_that_hold_themselves_end() -> None:
    value: list[object] = []
    value.append(value)
    assert len(shown(value)) < 100


def test_long_integers_are_not_written_out() -> None:
    assert shown(10**6000) == "an integer of about 6,001 digits"
    assert "digits" in shown([-(16**20_000)])


def test_lists_of_names_are_counted() -> None:
    assert shown_list(["a", "b\n"]) == r"a, b\n"
    assert shown_list(map(str, range(20)), 3) == "0, 1, 2, and 17 more"
    assert shown_list([]) == ""


@given(texts)
def test_an_answer_steers_no_terminal(text: str) -> None:
    found = shown_answer(text)
    assert not set(found) & set("\x1b\r\x07\x08\x7f\x85\x9b\u2028\u202a\u202e\u2066\u200f\u061c")
    assert found.count("\n") == text.count("\n")
    assert found.count("\t") == text.count("\t")


def test_an_answer_keeps_lines_tabs_and_what_scripts_need() -> None:
    text = "a\n\tb 👩\u200d👧 می\u200cخواهم ❤\ufe0f\n"
    assert shown_answer(text) == text
    assert all(is_safe(shown_answer(one), newlines=True) for one in HOSTILE if "\u200b" not in one)

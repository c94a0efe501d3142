"""Keys in a file, and what the server keeps of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.serve.doors.api_keys import MAX_KEYS, MIN_KEY_CHARS, ApiKeys, read_keys

SECRET = "sk-a-secret-key-of-ours"


def test_lines_have_keys_with_and_without_names():
    text = f"# ours\n\n{SECRET}\n  alice :  key-of-alice-1  \nalice: key-of-alice-2\n"
    assert read_keys(text, "keys.txt") == {
        SECRET: "line-3",
        "key-of-alice-1": "alice",
        "key-of-alice-2": "alice",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no API key"),
        ("# nothing\n\n", "there is no API key"),
        ("x" * (MIN_KEY_CHARS - 1), "visible ASCII characters"),
        ("x" * 513, "visible ASCII characters"),
        ("a key with spaces", "visible ASCII characters"),
        ("schlüssel-schlüssel", "visible ASCII characters"),
        (f"no name!: {SECRET}", "the name of an API key is none"),
        (f": {SECRET}", "the name of an API key is none"),
        (f"a: {SECRET}\nb: {SECRET}", "two names for one API key"),
        ("\n".join(f"key-number-{i:06d}" for i in range(MAX_KEYS + 1)), "too many API keys"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        read_keys(text, "keys.txt")
    assert SECRET not in str(caught.value)
    assert "keys.txt" in str(caught.value)


def test_a_key_is_found_by_itself_alone():
    keys = ApiKeys({SECRET: "ours", "another-key-here": "other"})
    assert keys.name_of(SECRET.encode()) == "ours"
    assert keys.name_of(b"another-key-here") == "other"
    for wrong in (b"", SECRET[:-1].encode(), SECRET.upper().encode(), SECRET.encode() + b" "):
        assert keys.name_of(wrong) is None


@given(st.binary(max_size=100))
def test_anything_may_be_sent(sent):
    assert ApiKeys({SECRET: "ours"}).name_of(sent) == ("ours" if sent == SECRET.encode() else None)


def test_neither_the_object_nor_its_text_holds_a_key():
    keys = ApiKeys({SECRET: "ours"})
    assert SECRET not in repr(vars(keys))
    # Digests of two processes differ, so that a list of digests of known keys is of no use.
    assert vars(keys)["_names"] != vars(ApiKeys({SECRET: "ours"}))["_names"]

"""The YAML of recipes: usual documents are read, any other ends in one line."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.compress.recipe_yaml import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NUMBER_CHARS,
    RecipeYamlError,
    parse_yaml,
)

PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.text(), st.floats(0, 9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(PLAIN)
def test_what_a_document_says(value: object) -> None:
    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    assert parse_yaml(yaml.dump(value, Dumper=Plain).encode()) == value


@settings(deadline=None)
@given(st.one_of(st.text("[]{}&*!?:,-'\"#|>%@` \n\tabc019.", max_size=60), st.text(max_size=30)))
def test_any_text_is_yaml_or_refused_in_one_line(text: str) -> None:
    line = ""
    try:
        parse_yaml(text.encode())
    except RecipeYamlError as error:
        line = str(error)
    assert "\n" not in line


def test_as_deep_as_a_recipe_may_be() -> None:
    assert parse_yaml(b"[" * (MAX_DEPTH - 1) + b"a" + b"]" * (MAX_DEPTH - 1))
    with pytest.raises(RecipeYamlError, match="more than 16 levels"):
        parse_yaml(b"[" * MAX_DEPTH + b"a" + b"]" * MAX_DEPTH)


def test_as_long_as_a_number_may_be() -> None:
    assert parse_yaml(b"9" * MAX_NUMBER_CHARS) == 10**MAX_NUMBER_CHARS - 1
    with pytest.raises(RecipeYamlError, match="more than 40 digits"):
        parse_yaml(b"9" * (MAX_NUMBER_CHARS + 1))


def test_dates_are_texts_and_a_mark_of_bytes_is_passed_over() -> None:
    assert parse_yaml("\ufeffa: 2001-01-01\n<<: {b: 1}\n".encode()) == {
        "a": "2001-01-01",
        "<<": {"b": 1},
    }


def test_as_many_bytes_as_there_may_be() -> None:
    assert parse_yaml(b"#" * MAX_BYTES) is None
    with pytest.raises(RecipeYamlError, match="4,000,001 bytes of YAML, at most 4,000,000"):
        parse_yaml(b"#" * (MAX_BYTES + 1))

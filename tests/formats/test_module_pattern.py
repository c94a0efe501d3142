"""Patterns over names: the same answers as Python's engine, in a time that has an end."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.formats.module_pattern import (
    MAX_PATTERNS,
    ModulePatterns,
    PatternError,
    UnreadPatternError,
    module_pattern,
)

NAMES = ("model.layers.1.mlp.gate", "model.layers.12.q_proj", "lm_head", "visual.blocks.0", "")
PATTERNS = (
    r".*lm_head",
    r"model\.layers\.\d+\.mlp",
    r"^lm_head$",
    r"^model\.layers\.12\.q_proj$",
    r"(?!.*proj).*",
    r"^(?!visual|lm_head)(?!.*gate$).*",
    r"(?=.*mlp)model.*|visual.*",
    r"^(?!.*[|)(])model",
    r".*\.(?:gate|q_proj)$",
    r"model\.layers\.[1-9]\.",
    r"[]m]odel",
    r"",
    r"mlp|q_proj",
    r"(?i)MODEL",
)


@pytest.mark.parametrize("where", ["match", "search", "fullmatch"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_answers_are_those_of_pythons_engine(where, pattern):
    if where == "search" and pattern.startswith("(?") and not pattern.startswith("(?i"):
        with pytest.raises(UnreadPatternError, match="a lookahead that may stand anywhere"):
            module_pattern(pattern, where)
        return
    theirs = getattr(re.compile(pattern), where)
    for name in NAMES:
        assert module_pattern(pattern, where).matches(name) == (theirs(name) is not None), name


PIECES = st.sampled_from(
    ["a", "b", ".", r"\.", "[ab]", "(?:ab|b)", "a+", "b*", "|", "^", "$", "a?"]
)


@given(
    pieces=st.lists(PIECES, max_size=6),
    looks=st.lists(st.sampled_from(["(?!a)", "(?=.*b)", "(?!.*a$)"]), max_size=2),
    name=st.text("ab.", max_size=6),
    where=st.sampled_from(["match", "fullmatch"]),
)
def test_made_up_patterns(pieces, looks, name, where):
    pattern = "".join([*looks, *pieces])
    ours = module_pattern(pattern, where)
    assert ours.matches(name) == (getattr(re.compile(pattern), where)(name) is not None)


@given(
    patterns=st.lists(st.sampled_from(["^a$", "a", "b+", r"^a\.b$", "^b$", "(?!a).*b", "$"])),
    name=st.text("ab.", max_size=3),
    copies=st.sampled_from([1, 40]),
)
def test_the_first_of_many_is_found(patterns, name, copies):
    many = [pattern for pattern in patterns for _ in range(copies)]
    expected = next((i for i, one in enumerate(many) if re.match(one, name)), None)
    assert ModulePatterns(many, "match").first(name) == expected


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("(", PatternError),
        ("(" * 5_000, PatternError),
        ("a{99999999999999}", UnreadPatternError),
        ("a{2,99999999999999}", UnreadPatternError),
        ("a{,5}", UnreadPatternError),
        ("(a{999}){999}", PatternError),
        (r"(a)\1", PatternError),
        (".*(?<!x)y", UnreadPatternError),
        ("a(?!b)", UnreadPatternError),
        ("(?!a", PatternError),
        ("a" * 20_000, UnreadPatternError),
        ("\ud800", PatternError),
    ],
)
def test_what_is_not_read_is_said_in_one_line(pattern, error):
    with pytest.raises(PatternError) as raised:
        module_pattern(pattern, "match")
    assert type(raised.value) is error
    assert len(str(raised.value)) < 400
    assert "\n" not in str(raised.value)


def test_names_are_found_without_an_expression_each():
    names = [f"model.layers.{i}.mlp" for i in range(3 * MAX_PATTERNS)]
    patterns = ModulePatterns([f"^{re.escape(name)}$" for name in names], "match")
    assert patterns.first(names[-1]) == len(names) - 1
    assert patterns.first("model.layers.x.mlp") is None
    with pytest.raises(UnreadPatternError, match="patterns, at most"):
        ModulePatterns([f"{i}.*" for i in range(MAX_PATTERNS + 1)], "match")

"""Turns in random pieces: the same events at every cut, and nothing lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.tool_formats import TOOL_FORMATS
from fakes.turns import FORMATS, HERMES, THINK, TOOLS, cut, loaded, read_turn
from paredown.models.chat.tool_format import TaggedCall
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.chat.written_calls import write_calls

# Pieces of what parsers look for, to be joined at random.
FRAGMENTS = [
    *(marker for form in TOOL_FORMATS.values() for marker in form.markers if marker),
    *("<think>", "</think>", "{", "}", "[", "]", '"', ":", ",", "\\", "\n", " ", "<", "</"),
    *('"name"', '"arguments"', '"parameters"', '"add"', "add", "note", "text", "a", "é", "🦊"),
    *('{"name": "add", "arguments": {"a": 1}}', "1", "null", "true", "01", '"x"'),
]


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(FRAGMENTS),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
json_calls = st.tuples(
    st.sampled_from(["add", "note", "ping", "add_all"]),
    st.dictionaries(st.text(max_size=6), values, max_size=3),
)
# No JSON and no tag tells these apart from what stands around them.
plain_texts = st.text(
    st.characters(exclude_characters="<>", exclude_categories=["Cs"]), max_size=12
).filter(lambda text: text == text.strip())
tagged_calls = st.fixed_dictionaries(
    {},
    optional={
        "text": plain_texts,
        "number": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "items": st.lists(st.integers() | plain_texts, max_size=3),
        "inner": st.dictionaries(plain_texts, st.integers(), max_size=2),
    },
).map(lambda arguments: ("add_all", arguments))
places = st.lists(st.integers(0, 10_000), max_size=8)


@pytest.mark.parametrize("name", TOOL_FORMATS)
@given(data=st.data(), places=places)
@settings(max_examples=20)
def test_written_calls_are_read_back_at_every_cut(
    name: str, data: st.DataObject, places: list[int]
) -> None:
    form = TOOL_FORMATS[name]
    one = tagged_calls if isinstance(form.body, TaggedCall) else json_calls
    calls = data.draw(st.lists(one, min_size=1, max_size=3 if form.is_parallel else 1))
    before = "" if form.is_bare else data.draw(st.sampled_from(["", "I add them.", "é < f {"]))
    text = before + ("\n" if before else "") + write_calls(form, calls)
    turn = read_turn(FORMATS[name], cut(text, places), TOOLS)
    assert loaded(turn) == calls
    assert turn.content == before


@pytest.mark.parametrize("name", TOOL_FORMATS)
@given(fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=12), places=places)
@settings(max_examples=30)
def test_any_text_gives_the_same_at_every_cut_and_nothing_is_lost(
    name: str, fragments: list[str], places: list[int]
) -> None:
    form = TurnFormat(tool_format=TOOL_FORMATS[name], reasoning=THINK)
    text = "".join(fragments)
    whole = read_turn(form, [text], TOOLS)
    assert read_turn(form, cut(text, places), TOOLS) == whole
    assert read_turn(form, text, TOOLS) == whole
    if not whole.names and "<think>" not in text:
        assert whole.content == text


@given(
    thought=st.text(max_size=12).map(str.strip),
    content=st.text(max_size=12).map(str.strip),
    is_open=st.booleans(),
    places=places,
)
def test_reasoning_and_content_are_told_apart(
    thought: str, content: str, is_open: bool, places: list[int]
) -> None:
    text = f"{'' if is_open else '<think>'}\n{thought}\n</think>\n\n{content}"
    turn = read_turn(HERMES, cut(text, places), TOOLS, reasoning_open=is_open)
    assert (turn.reasoning, turn.content, turn.names) == (thought, content, [])

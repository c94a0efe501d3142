"""Texts become the tokens of the tokenizer; long ones lose what is asked and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.encoder_server import toy_model
from fakes.word_tokenizer import word_library
from paredown.engine.encode.prompts import PromptChoice
from paredown.engine.encode.read_pairs import read_pairs
from paredown.engine.encode.read_texts import as_texts, read_texts
from paredown.engine.sampling.field_rules import ParameterError
from paredown.errors import CheckpointError, RequestError

MODEL = toy_model()
LIBRARY = word_library()
WORDS = st.lists(st.sampled_from("abcdefgh"), max_size=90).map(" ".join)


@given(WORDS, WORDS, st.sampled_from(["end", "start"]))
@settings(deadline=None)
def test_texts_and_pairs_are_what_the_library_makes_of_them(first, second, truncate):
    side = {"end": "right", "start": "left"}[truncate]
    LIBRARY.enable_truncation(64, direction=side)
    expected = LIBRARY.encode(first)
    read = read_texts(MODEL, [first], truncate=truncate)
    assert read.texts[0].token_ids == expected.ids
    assert read.counts.num_tokens == (len(expected.ids),)
    pair = LIBRARY.encode(first, second)
    read = read_pairs(MODEL, [(first, second)], truncate=truncate)
    assert read.texts[0].token_ids == pair.ids
    assert list(read.texts[0].type_ids or [0] * len(pair.ids)) == pair.type_ids
    LIBRARY.no_truncation()
    is_cut = len(LIBRARY.encode(first, second).ids) > 64
    assert read.counts.cut == ((0,) if is_cut else ())


@given(st.lists(st.integers(0, 511), min_size=1, max_size=90))
def test_token_ids_are_taken_as_they_are(token_ids):
    read = read_texts(MODEL, [token_ids], truncate="end")
    assert list(read.texts[0].token_ids) == token_ids[:64]
    assert read.counts.cut == ((0,) if len(token_ids) > 64 else ())
    read = read_texts(MODEL, [np.array(token_ids)], truncate="start")
    assert list(read.texts[0].token_ids) == token_ids[-64:]


def test_one_text_is_a_list_of_one():
    assert as_texts("a") == ["a"]
    assert as_texts([1, 2]) == [[1, 2]]
    assert as_texts(("a", "b")) == ["a", "b"]
    assert as_texts(iter([[1], [2]])) == [[1], [2]]


@pytest.mark.parametrize(
    "texts", [5, None, b"a", [b"a"], ["a", 5], ["a", [5]], [[5], "a"], [None], [True, False]]
)
def test_what_is_no_text_is_refused(texts):
    with pytest.raises(RequestError, match="texts are strings or lists"):
        as_texts(texts)


@pytest.mark.parametrize("texts", [[], (), iter([])])
def test_no_texts_are_refused(texts):
    with pytest.raises(RequestError, match="no texts"):
        as_texts(texts)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ([], "no tokens"),
        ([512], "token id"),
        ([-1], "token id"),
        ([1.5], "token id"),
        (["a"], "token id"),
        ("a " * 63, "65 tokens, at most 64"),
        ("\ud800", "surrogate"),
        ("a" * 1_000_000, "longer than"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_number(text, says):
    with pytest.raises(RequestError, match=says):
        read_texts(MODEL, [text])
    with pytest.raises(RequestError, match="text 1: "):
        read_texts(MODEL, [[5] if isinstance(text, list) else "a", text])


def test_an_unknown_way_to_cut_is_refused():
    with pytest.raises(ParameterError, match="truncate"):
        read_texts(MODEL, ["a"], truncate="middle")


def test_a_text_is_lowercased_where_the_settings_say_so():
    cased, lowered = ["A"], ["a"]
    model = toy_model(lowercases=True)
    assert read_texts(model, cased).texts == read_texts(model, lowered).texts


def test_settings_without_room_for_a_text_are_refused():
    with pytest.raises(CheckpointError, match="no room"):
        toy_model(max_tokens=2)


def test_settings_may_take_fewer_tokens_than_the_model():
    model = toy_model(max_tokens=8)
    assert read_texts(model, ["a " * 50], truncate="end").counts.num_tokens == (8,)
    with pytest.raises(RequestError, match="52 tokens, at most 8"):
        read_texts(model, ["a " * 50])


def test_a_prompt_before_token_ids_is_refused_unless_it_is_the_default():
    settings = toy_model(prompts={"query": "q "}, default_prompt="query").settings
    assert PromptChoice().before([[5]], settings) == ""
    assert PromptChoice().before(["a"], settings) == "q "
    for choice in (
        PromptChoice(prompt="x "),
        PromptChoice(prompt_name="query"),
        PromptChoice(input_type="query"),
    ):
        with pytest.raises(ParameterError, match="before token ids"):
            choice.before([[5]], settings)
    assert PromptChoice(input_type="document").before([[5]], settings) == ""

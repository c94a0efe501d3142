"""A wrong value is named with its place, what it should be, and what it is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.serve.errors import HttpError
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.completion import CompletionRequest
from paredown.serve.schema.strict import parse


def told(fields, model=CompletionRequest, **base) -> tuple[str, str]:
    with pytest.raises(HttpError) as raised:
        parse(model, base | fields)
    assert raised.value.status == 400
    return raised.value.message, raised.value.param


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"prompt": 7}, "prompt", "prompt: should be a string or a list (saw: 7)"),
        ({}, "prompt", "prompt: is missing"),
        (
            {"prompt": [1, True]},
            "prompt",
            "prompt.1: should be a token id, which is an integer (saw: true)",
        ),
        ({"prompt": [[1], "a"]}, "prompt", "prompt.1: should be a list (saw: 'a')"),
        ({"prompt": ["a", None]}, "prompt", "prompt.1: should be a string (saw: null)"),
        (
            {"prompt": [[1, 2], [3, 4.5]]},
            "prompt",
            "prompt.1.1: should be a token id, which is an integer (saw: 4.5)",
        ),
        ({"prompt": "A", "stop": [None]}, "stop", "stop.0: should be a string (saw: null)"),
        ({"prompt": "A", "stop": 3}, "stop", "stop: should be a string or a list (saw: 3)"),
        (
            {"prompt": "A", "temperature": "1"},
            "temperature",
            "temperature: should be a number (saw: '1')",
        ),
        (
            {"prompt": "A", "stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options",
            "stream_options.include_obfuscation: should be false (saw: true)",
        ),
        ({"prompt": "A", "stream": 1}, "stream", "stream: should be true or false (saw: 1)"),
        ({"prompt": "A", "n": 200}, "n", "n: input should be less than or equal to 128 (saw: 200)"),
        (
            {"prompt": "A", "logit_bias": [1]},
            "logit_bias",
            "logit_bias: should be an object (saw: a list of 1)",
        ),
        ({"prompt": "A", "best_of": 3}, "best_of", "best_of: this field is not supported"),
        # A field that is not served is told first.
        (
            {"prompt": "A", "temperature": "1", "best_of": 3, "n": 0},
            "best_of",
            "best_of: this field is not supported",
        ),
        ({"prompt": "A", "temprature": 3}, "temprature", "temprature: this field is not known"),
        (
            {"prompt": "A", "metadata": {"a": 1}},
            "metadata",
            "metadata.a: should be a string (saw: 1)",
        ),
    ],
)
def test_the_place_the_kind_and_the_value_are_told(fields, param, message):
    found, at = told(fields)
    assert found.startswith(message)
    assert at == param


def test_keys_of_biases_that_are_no_tokens_are_all_told():
    asked = parse(CompletionRequest, {"prompt": "A", "logit_bias": {"a": 1, "7": 1, "b" * 99: 2}})
    with pytest.raises(HttpError) as raised:
        asked.params(SamplingDefaults())
    assert raised.value.param == "logit_bias"
    assert "saw: a, bbb" in raised.value.message
    many = {f"bad{number}": 1.0 for number in range(1000)}
    with pytest.raises(HttpError, match=r"bad7, and 992 more\)"):
        parse(CompletionRequest, {"prompt": "A", "logit_bias": many}).params(SamplingDefaults())


@pytest.mark.parametrize("content", [[{"type": "text"}], [{"type": "text", "text": 3}]])
def test_parts_of_messages_are_named_without_the_kinds_of_a_union(content):
    message = told({"messages": [{"role": "user", "content": content}]}, ChatRequest)[0]
    assert message.startswith("messages.0.content.0.text: ")


def test_a_value_is_cut():
    message = told({"prompt": "A", "temperature": "9" * 10_000})[0]
    assert len(message) < 200
    message = told({"prompt": "A", "x" * 10_000: 1})[0]
    assert len(message) < 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.sampled_from(["prompt", "stop", "logit_bias", "bad_words", "metadata"]), VALUES)
def test_the_place_is_one_in_the_body(field, value):
    found = refusal({"prompt": "A"} | {field: value})
    if found is not None:
        assert found.param == field
        place = found.message.partition(": ")[0]
        assert place.split(".")[0].split(" ")[0] == field
        for name in ("str", "list[", "function-", "constrained"):
            assert name not in place or name in json.dumps(value)


def refusal(body) -> HttpError | None:
    try:
        parse(CompletionRequest, body)
    except HttpError as error:
        return error
    return None

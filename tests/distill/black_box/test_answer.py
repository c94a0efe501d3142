"""Tests what a body must be to be an answer, and which answers teach nothing."""

import json

import pytest

from paredown.distill.black_box.answer import Answer, GarbageError, parse_answer


def body(message: object, **more: object) -> bytes:
    choice = {"message": message, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], **more}).encode()


def said(text: str, reason: str | None = "stop") -> Answer:
    return Answer(text=text, finish_reason=reason, num_tokens=None)


@pytest.mark.parametrize(
    ("usage", "num"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}, 7),
        ({"prompt_tokens": 3, "completion_tokens": 4}, 7),
        ({"total_tokens": 9}, 9),
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 2}, 7),
        ({"prompt_tokens": 3}, None),
        ({"total_tokens": -1}, None),
        ([], None),
        (None, None),
    ],
)
def test_tokens_are_the_most_that_usage_tells(usage: object, num: int | None) -> None:
    found = parse_answer(body({"content": "yes"}, usage=usage))
    assert (found.text, found.finish_reason, found.num_tokens) == ("yes", "stop", num)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [3]}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": {"content": 3}}]}',
        b'{"choices": [{"message": {"content": "x"}, "finish_reason": 3}]}',
        rb'{"choices": [{"message": {"content": "\ud800"}}]}',
        b'{"choices": ' + b"[" * 100 + b"]" * 100 + b"}",
        b"\xff\xfe",
    ],
)
def test_anything_else_is_garbage(data: bytes) -> None:
    with pytest.raises(GarbageError):
        parse_answer(data)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("I'm sorry, but I can't help with that.", "refused"),
        ("I cannot assist with this request.", "refused"),
        ("Sorry, I can't do that.", "refused"),
        ("Unfortunately, I am unable to answer.", "refused"),
        ("As an AI language model, I have no feelings.", "refused"),
        ("I am very sorry, I won’t.", "refused"),
        ("I can tell you: 4.", None),
        ("I'm sorry for your loss. Here is a letter.", None),
        ("Canberra.", None),
        ("I can't stress enough: " + "drink water, " * 50, None),
    ],
)
def test_short_refusals_and_empty_answers_teach_nothing(text: str, fault: str | None) -> None:
    assert said(text).fault() == fault


def test_the_api_has_two_ways_to_say_that_it_refuses() -> None:
    refused = parse_answer(body({"content": None, "refusal": "No."}))
    assert refused.fault() == "refused"
    assert said("half of", "content_filter").fault() == "refused"
    assert parse_answer(body({"content": None})).fault() == "empty"


def test_an_answer_that_reached_its_limit_was_cut() -> None:
    assert said("and then", "length").was_cut
    assert not said("The end.").was_cut
    assert not said("The end.", None).was_cut

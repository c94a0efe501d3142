"""A reader tells reasoning from text, and counts the tokens of each however they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.chat_client import ADD, TURN_FORMAT, call
from paredown.engine.request_output import RequestOutput
from paredown.models.chat.turn_parser import Reasoning
from paredown.serve.answers.turn import Turn
from paredown.serve.answers.turn_reader import ParsedReader, PlainReader

END_ID = 9
# Tokens and their texts.
TOKENS = [(1, "hm "), (2, "so"), (3, " ..."), (END_ID, "</think>"), (5, "\n"), (6, "Yes"), (7, ".")]


def output(tokens: list[tuple[int, str]], *, is_last: bool) -> RequestOutput:
    return RequestOutput(
        None,  # type: ignore[arg-type]
        "".join(text for _, text in tokens),
        [token_id for token_id, _ in tokens],
        finish_reason="stop" if is_last else None,
    )


def read(sizes: list[int], *, end_id: int | None) -> tuple[int, Turn]:
    """The reasoning tokens and the turn of TOKENS in outputs of these sizes, then the rest."""
    parser = TURN_FORMAT.parser(tools=[ADD], reasoning_open=True)
    reader, turn, rest = (
        ParsedReader(parser, is_reasoning=True, reasoning_end_id=end_id),
        Turn(),
        TOKENS,
    )
    for size in sizes:
        turn.add(reader.read(output(rest[:size], is_last=False)))
        rest = rest[size:]
    turn.add(reader.read(output(rest, is_last=True)))
    return reader.num_reasoning_tokens, turn


@given(st.lists(st.integers(1, 4), max_size=7))
def test_the_token_that_ends_reasoning_is_its_last(sizes: list[int]) -> None:
    num_tokens, turn = read(sizes, end_id=END_ID)
    assert (num_tokens, turn.reasoning, turn.content) == (4, "hm so ...", "Yes.")


@given(st.lists(st.integers(1, 4), max_size=7))
def test_without_such_a_token_it_is_about_as_many(sizes: list[int]) -> None:
    num_tokens, turn = read(sizes, end_id=None)
    assert 3 <= num_tokens <= 6
    assert turn.reasoning == "hm so ..."


def test_calls_change_why_an_answer_ended() -> None:
    parser = TURN_FORMAT.parser(tools=[ADD])
    reader = ParsedReader(parser, is_reasoning=False, reasoning_end_id=None)
    whole = output([(1, call("add", a=1, b=2))], is_last=True)
    turn = Turn()
    turn.add(reader.read(whole))
    assert [one.name for one in turn.calls] == ["add"]
    assert reader.finish_reason(whole) == "tool_calls"
    whole.finish_reason = "length"
    assert reader.finish_reason(whole) == "length"


@pytest.mark.parametrize("text", ["", "<think>no</think>"])
def test_plain_text_is_content(text: str) -> None:
    reader = PlainReader()
    events = reader.read(output([(1, text)], is_last=True))
    assert not [one for one in events if isinstance(one, Reasoning)]
    turn = Turn()
    turn.add(events)
    assert turn.content == text

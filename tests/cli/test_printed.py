"""The door to the terminal: lines, JSON and answers."""

import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.hostile_text import HOSTILE, is_safe, texts
from paredown.cli.printed import (
    MAX_LINE_CHARS,
    prompt,
    say,
    say_answer,
    say_json,
    say_own,
    tell,
)

printing = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@printing
@given(texts)
def test_a_line_is_one_safe_line(capsys: pytest.CaptureFixture[str], text: str) -> None:
    say(text)
    tell(text)
    out, err = capsys.readouterr()
    assert out == err
    assert out.endswith("\n")
    assert is_safe(out[:-1])
    assert len(out) <= MAX_LINE_CHARS + 1


@printing
@given(st.dictionaries(st.text(st.characters()), st.text(st.characters())))
def test_json_stays_json_in_ascii(
    capsys: pytest.CaptureFixture[str], value: dict[str, str]
) -> None:
    say_json(value)
    out = capsys.readouterr().out
    assert json.loads(out) == value
    assert out.isascii()
    assert is_safe(out, newlines=True)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_gets_an_answer_escaped_and_a_pipe_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "\ud800" not in text and "\udc9b" not in text:
        say_answer(text)
        assert capsys.readouterr().out == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    say_answer(text)
    assert not set(capsys.readouterr().out) & set("\x1b\x07\r\x9b\u202e\u2066\ud800\udc9b\x7f")


def test_what_is_our_own_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say_own("a\n  b")
    prompt("> ")
    assert capsys.readouterr() == ("a\n  b\n", "> ")

"""The door to the terminal: lines, JSON, answers, logs and traces."""

import json
import logging
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.hostile_text import HOSTILE, is_safe, texts
from paredown.cli.printed import (
    MAX_LINE_CHARS,
    LogLine,
    escape_logs_and_traces,
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


def _record(message: str, error: Exception | None = None) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, None)
    return logging.LogRecord("x", logging.WARNING, "x.py", 1, "%s", (message,), exc_info)


@given(texts)
def test_a_log_line_is_one_line_and_a_trace_stands_apart(text: str) -> None:
    assert is_safe(LogLine().format(_record(text)))
    first, *trace = LogLine().format(_record("it failed", ValueError(text))).split("\n")
    assert first == "it failed"
    assert trace
    assert all(line.startswith("  ") and is_safe(line) for line in trace)


def test_the_trace_of_a_bug_is_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    escape_logs_and_traces()
    try:
        raise ValueError("\x1b[31m\u202e")
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    err = capsys.readouterr().err
    assert err.endswith("ValueError: \\x1b[31m\\u202e\n")
    assert "Traceback (most recent call last):" in err
    assert is_safe(err, newlines=True)

"""Logs and traces: lines that no message can forge."""

import io
import logging
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given

from drivers.hostile_text import HOSTILE, is_safe, texts
from paredown.cli.log_lines import LogLine, escape_logs_and_traces


@pytest.fixture
def escaped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    factory = logging.getLogRecordFactory()
    escape_logs_and_traces()
    yield
    logging.setLogRecordFactory(factory)


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


def test_the_trace_of_a_bug_is_escaped(capsys: pytest.CaptureFixture[str], escaped: None) -> None:
    try:
        raise ValueError("\x1b[31m\u202e")
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    err = capsys.readouterr().err
    assert err.endswith("ValueError: \\x1b[31m\\u202e\n")
    assert "Traceback (most recent call last):" in err
    assert is_safe(err, newlines=True)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_librarys_own_handler_writes_it_escaped(text: str, escaped: None) -> None:
    stream, library = io.StringIO(), logging.Logger("library")
    library.addHandler(logging.StreamHandler(stream))
    library.warning("the hub says %s", text)
    assert stream.getvalue().startswith("the hub says ")
    assert is_safe(stream.getvalue()[:-1])

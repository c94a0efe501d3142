"""The handler of the server's log."""

import json
import logging

import pytest

from paredown.serve.watch import log
from paredown.serve.watch.log import MAX_LINES, ServerLog, lines_of


@pytest.fixture
def logger(monkeypatch):
    """A logger with a handler of its own, and a clock that the test sets."""
    now_s = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now_s[0])
    one = logging.Logger("test")
    one.now_s = now_s
    one.handler = ServerLog()
    one.addHandler(one.handler)
    return one


def test_a_place_has_so_many_lines_and_the_others_are_counted(logger, capsys):
    for number in range(1000):
        logger.warning("request %d", number)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"WARNING: request {number}" for number in range(MAX_LINES)]
    logger.now_s[0] = log.PERIOD_S + 1
    logger.handler.tell_left_out(logger.now_s[0])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"WARNING: {1000 - MAX_LINES} more lines like those of test_log.py:")
    logger.now_s[0] += log.PERIOD_S + 1
    logger.handler.tell_left_out(logger.now_s[0])
    assert not capsys.readouterr().err


def test_places_are_told_apart_whatever_their_text(logger, capsys):
    for number in range(50):
        logger.warning(f"text {number}")
        logger.error("other")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 * MAX_LINES


def test_a_line_is_one_line_escaped_and_short(logger, capsys):
    logger.warning("a\nERROR: forged\x1b[2J\u202e %s", "x" * 10_000)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("WARNING: a\\nERROR: forged\\x1b[2J\\u202e xxx")
    assert len(line) <= log.MAX_LINE_CHARS


def test_a_trace_is_marked_and_short():
    def deep(number):
        if number:
            deep(number - 1)
        raise ValueError("one\nWARNING: forged\x1b[2J")

    try:
        deep(300)
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "f.py", 1, "it failed", None, info)
    first, *others = lines_of(record)
    assert first == "ERROR: it failed"
    assert 0 < len(others) <= log.MAX_TRACE_LINES
    assert all(line.startswith("  | ") for line in others)
    assert others[-1] == "  | WARNING: forged\\x1b[2J"


def test_a_record_that_cannot_be_written_ends_nobody(logger, monkeypatch, capsys):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger.warning("%d", "no number")
    monkeypatch.setattr(log.sys, "stderr", None)
    logger.warning("nowhere to go")


def test_a_line_as_json_is_one_object_with_its_trace(logger, capsys):
    logger.handler.writes_json = True
    logger.warning("a\nERROR: forged\x1b[2J %s", "x" * 10_000)
    try:
        raise ValueError("one\nWARNING: forged")
    except ValueError:
        logger.exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["level"] == "WARNING"
    assert first["message"].startswith("a\\nERROR: forged\\x1b[2J xxx")
    assert len(first["message"]) <= log.MAX_LINE_CHARS
    assert (second["level"], second["message"]) == ("ERROR", "it failed")
    assert second["trace"][-1] == "WARNING: forged"


def test_what_is_left_out_is_told_as_json_too(logger, capsys):
    logger.handler.writes_json = True
    for number in range(10):
        logger.warning("request %d", number)
    logger.now_s[0] = log.PERIOD_S + 1
    logger.handler.tell_left_out(logger.now_s[0])
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(lines) == MAX_LINES + 1
    assert lines[-1]["message"].startswith(f"{10 - MAX_LINES} more lines like those of")


def test_lines_that_have_no_room_are_counted_with_those_that_were_left_out(logger):
    found, has_room = [], [False]
    logger.handler.take_text = lambda text: has_room[0] and (found.append(text) or True)
    for number in range(3):
        logger.warning("request %d", number)
    has_room[0] = True
    logger.now_s[0] = log.PERIOD_S + 1
    logger.handler.tell_left_out(logger.now_s[0])
    (line,) = found
    assert line.startswith("WARNING: 3 more lines like those of")

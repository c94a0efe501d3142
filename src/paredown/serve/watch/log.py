"""The server's log. Clients cannot forge its lines, nor make them long or numerous.

One handler on standard error writes the logs of uvicorn, asyncio and our own rooms. Each line is
escaped and cut. Each place in the code may log MAX_LINES per PERIOD_S; the number of others is
reported at the end of the period.
"""

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paredown.serve.watch.now_text import now_text
from paredown.shown import shown

MAX_LINES = 5
PERIOD_S = 60.0
MAX_LINE_CHARS = 600
# The innermost frames of a traceback say most.
MAX_TRACE_LINES = 60


@dataclass(slots=True)
class _Count:
    """Counts the lines of one place since `start_s`."""

    start_s: float
    line: str
    num_told: int = 0
    num_left_out: int = 0


class ServerLog(logging.Handler):
    """Writes lines as text, or as JSON objects where those of requests are, too."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_json = False
        # Where lines go; without it to standard error, at once.
        self.take_text: Callable[[str], object] | None = None
        self._counts: dict[tuple[str, int, str], _Count] = {}
        self._next_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            now_s = time.monotonic()
            self.tell_left_out(now_s)
            # Counted by place, not by text, which a client may choose.
            key = (record.pathname, record.lineno, record.levelname)
            count = self._counts.get(key)
            if count is None:
                count = self._counts[key] = _Count(now_s, f"{record.filename}:{record.lineno}")
            if count.num_told >= MAX_LINES:
                count.num_left_out += 1
                return
            if self._write([json_line(record)] if self.writes_json else lines_of(record)):
                count.num_told += 1
            else:
                count.num_left_out += 1
        except Exception:
            # Logging is called everywhere, so a closed stream must not end the caller.
            self.handleError(record)

    def tell_left_out(self, now_s: float) -> None:
        """Resets the counts whose period is over, and reports what they left out."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + min(1.0, PERIOD_S / 10)
        over = [key for key, one in self._counts.items() if now_s - one.start_s >= PERIOD_S]
        for key in over:
            count = self._counts.pop(key)
            if count.num_left_out:
                more = f"{count.num_left_out:,} more lines like those of {count.line} were left out"
                told = {"time": now_text(), "level": key[2], "message": more}
                self._write([json.dumps(told)] if self.writes_json else [f"{key[2]}: {more}"])

    def _write(self, lines: Iterable[str]) -> bool:
        """Returns whether there was room for the lines."""
        text = "".join(f"{line}\n" for line in lines)
        if self.take_text is not None:
            return self.take_text(text) is not False
        sys.stderr.write(text)
        sys.stderr.flush()
        return True


class _SendsToNobody(logging.Filter):
    """Drops what asyncio says of each write to a client that has gone: the line of the request says
    that it was cut off."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != "socket.send() raised exception."


def lines_of(record: logging.LogRecord) -> Iterator[str]:
    """Yields a record's line and those of its traceback, each marked so that none passes for
    another record."""
    yield shown(f"{record.levelname}: {record.getMessage().strip()}", MAX_LINE_CHARS)
    for line in _trace(record):
        yield f"  | {line}"


def json_line(record: logging.LogRecord) -> str:
    """Returns a record as a JSON object on one line."""
    told: dict[str, object] = {
        "time": now_text(),
        "level": record.levelname,
        "message": shown(record.getMessage().strip(), MAX_LINE_CHARS),
    }
    if trace := list(_trace(record)):
        told["trace"] = trace
    return json.dumps(told)


def _trace(record: logging.LogRecord) -> Iterator[str]:
    if record.exc_info is None or record.exc_info[1] is None:
        return
    trace = "".join(traceback.format_exception(record.exc_info[1], limit=-MAX_TRACE_LINES // 2))
    for line in trace.splitlines()[-MAX_TRACE_LINES:]:
        yield shown(line, MAX_LINE_CHARS)


_HANDLER = ServerLog()


@contextmanager
def written_by(take_text: Callable[[str], object], *, as_json: bool) -> Iterator[None]:
    """Has the lines of the process's log written so inside."""
    _HANDLER.take_text, _HANDLER.writes_json = take_text, as_json
    try:
        yield
    finally:
        _HANDLER.take_text, _HANDLER.writes_json = None, False


def tell_left_out() -> None:
    """Reports how many lines were left out in periods that are over."""
    _HANDLER.acquire()
    try:
        _HANDLER.tell_left_out(time.monotonic())
    finally:
        _HANDLER.release()


# For logging.config.dictConfig, which uvicorn calls. Handlers of a test or program at the root also
# receive everything.
LOG_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"sends": {"()": _SendsToNobody}},
    "handlers": {"server": {"()": lambda: _HANDLER}},
    "loggers": {
        name: {"handlers": ["server"], "level": "WARNING", "filters": ["sends"]}
        for name in ("paredown", "uvicorn", "asyncio")
    },
}

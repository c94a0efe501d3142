"""Escapes log messages, ours and those of libraries, and tracebacks of bugs.

Messages contain file names, clients' values and answers of the hub.
"""

import logging
import sys
import traceback
from types import TracebackType

from paredown.cli.printed import MAX_LINE_CHARS, tell
from paredown.shown import shown


def escape_logs_and_traces() -> None:
    """Escapes logs for the whole process, whichever handler writes them."""
    logging.setLogRecordFactory(_Record)
    # Writes whatever no other handler takes.
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogLine())
    sys.excepthook = _print_trace


class _Record(logging.LogRecord):
    def getMessage(self) -> str:  # noqa: N802
        return shown(super().getMessage(), MAX_LINE_CHARS)


class LogLine(logging.Formatter):
    """Formats a message as one line. Traceback lines are indented, so that none passes for a
    message."""

    def format(self, record: logging.LogRecord) -> str:
        line = shown(record.getMessage(), MAX_LINE_CHARS)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line

    def formatException(self, ei: object) -> str:  # noqa: N802
        trace = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"  {shown(line, MAX_LINE_CHARS)}" for line in trace.split("\n"))


def _print_trace(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    for part in traceback.format_exception(kind, error, trace):
        for line in part.rstrip("\n").split("\n"):
            tell(line)

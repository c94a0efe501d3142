"""What is logged, by us and by libraries, and the trace of a bug: escaped as lines are.

Messages hold names of files, a client's values and what a hub answers.
"""

import logging
import sys
import traceback
from types import TracebackType

from paredown.cli.printed import MAX_LINE_CHARS, tell
from paredown.shown import shown


def escape_logs_and_traces() -> None:
    """For the whole process, whoever writes its log."""
    logging.setLogRecordFactory(_Record)
    # It writes what no other handler takes.
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogLine())
    sys.excepthook = _print_trace


class _Record(logging.LogRecord):
    def getMessage(self) -> str:  # noqa: N802
        return shown(super().getMessage(), MAX_LINE_CHARS)


class LogLine(logging.Formatter):
    """A message on one line. The lines of a trace below it are indented, so that none of them can
    pass for a message."""

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

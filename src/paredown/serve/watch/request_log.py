"""RequestLog: writes one line a request, at most MAX_LINES a second; it says how many it left
out."""

import json
import time
from collections.abc import Callable
from typing import Literal

from paredown.serve.watch.now_text import now_text
from paredown.serve.watch.request_line import RequestLine

Form = Literal["json", "text"]
MAX_LINES = 200
_PERIOD_S = 1.0


class RequestLog:
    """Belongs to one event loop. `write_line` takes a line with its end, and returns False where it
    has no room for it."""

    def __init__(self, form: Form, write_line: Callable[[str], object]) -> None:
        self._form = form
        self._write_line = write_line
        self._start_s = time.monotonic()
        self._num_told = self._num_left_out = 0

    def write(self, line: RequestLine) -> None:
        self.tell_left_out()
        if self._num_told >= MAX_LINES:
            self._num_left_out += 1
            return
        now = now_text()
        told = line.as_json(now) if self._form == "json" else line.as_text(now)
        if self._write_line(f"{told}\n") is False:
            self._num_left_out += 1
        else:
            self._num_told += 1

    def tell_left_out(self, *, at_once: bool = False) -> None:
        """Begins a new period where the last is over, or `at_once`, and tells what that left
        out."""
        now_s = time.monotonic()
        if now_s - self._start_s < _PERIOD_S and not at_once:
            return
        self._start_s, self._num_told = now_s, 0
        if num := self._num_left_out:
            if self._form == "json":
                line = json.dumps({"time": now_text(), "left_out": num}, separators=(",", ":"))
            else:
                line = f"{now_text()} {num:,} more requests were left out"
            if self._write_line(f"{line}\n") is not False:
                self._num_left_out = 0

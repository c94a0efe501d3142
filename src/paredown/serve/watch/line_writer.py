"""LineWriter: writes the lines of logs in a thread of its own, so that no request waits for whoever
reads them."""

import queue
import sys
import threading

MAX_WAITING = 1000


class LineWriter:
    """Writes to standard error. Any thread may write."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(max_waiting)
        self._thread = threading.Thread(target=self._run, name="paredown-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> bool:
        """Returns whether there was room for the text, which ends with a line's end."""
        try:
            self._lines.put_nowait(text)
        except queue.Full:
            return False
        return True

    def close(self, timeout_s: float = 1.0) -> None:
        """Waits for what has been taken to be written; where nobody reads it, only so long."""
        try:
            self._lines.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (text := self._lines.get()) is not None:
            try:
                sys.stderr.write(text)
                sys.stderr.flush()
            except (OSError, ValueError):  # it is closed: nobody wants to know
                continue

"""Turns signals that end a verb into exceptions, so that half-written files are removed."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from paredown.stopped import StoppedError

# Ctrl-C already raises KeyboardInterrupt.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise StoppedError once; later signals wait for the cleanup. A
    signal that the caller handles or ignores (nohup) stays with the caller. Only the main thread
    receives signals; elsewhere this does nothing."""
    taken = []
    if threading.current_thread() is threading.main_thread():
        taken = [one for one in STOP_SIGNALS if signal.getsignal(one) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    for one in STOP_SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise StoppedError(number)

"""Shows the progress of long work on stderr: a bar that disappears at the end, or an occasional
line where stderr is no terminal (a log, a service)."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.text import Text

from paredown.cli.console import make_console
from paredown.progress import time_left
from paredown.shown import shown
from paredown.units import format_duration

# Work that ends earlier prints no line.
FIRST_LINE_S = 10.0
LINE_EVERY_S = 30.0

Clock = Callable[[], float]


class ProgressView(Protocol):
    """A progress display. `share` of the whole is done; None if unknown."""

    def show(self, what: str, share: float | None) -> None: ...


class ProgressBar:
    """The callbacks that long work reports to (paredown.progress)."""

    def __init__(self, view: ProgressView, what: str) -> None:
        self._view = view
        self._what = shown(what)

    def show_share(self, what: str, share: float) -> None:
        """Shows the current activity and the share of the whole that is done."""
        self._what = shown(what)
        self._view.show(self._what, share)

    def show_count(self, done: int, total: int) -> None:
        """Shows how many of the steps are done."""
        self._view.show(self._what, done / total if total else 1.0)

    def show_note(self, what: str) -> None:
        """Shows the current activity where the total is unknown."""
        self._what = shown(what)
        self._view.show(self._what, None)


class ProgressLines:
    """Prints a line for the current activity, at most every LINE_EVERY_S seconds."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._next = self._started + FIRST_LINE_S

    def show(self, what: str, share: float | None) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + LINE_EVERY_S
        if share is None:
            line = f"{format_duration(now - self._started)}: {what}"
        else:
            line = f"{share:.0%}: {what}{_left(now - self._started, share)}"
        self._stream.write(f"{shown(line)}\n")
        self._stream.flush()


class _Bar:
    """Shows rich's bar with the time left that follows from the reported shares."""

    def __init__(self, progress: Progress, task: TaskID, clock: Clock = time.monotonic) -> None:
        self._progress = progress
        self._task = task
        self._clock = clock
        self._started = clock()

    def show(self, what: str, share: float | None) -> None:
        if share is None:
            self._progress.update(self._task, description=what)
            return
        left = _left(self._clock() - self._started, share)
        self._progress.update(
            self._task, description=what, completed=share, total=1.0, left=Text(left)
        )


def _left(elapsed_s: float, share: float) -> str:
    seconds = time_left(elapsed_s, share)
    return "" if seconds is None else f", {format_duration(seconds)} left"


@contextmanager
def progress_bar(what: str) -> Iterator[ProgressBar]:
    """Shows progress with the description `what` until the block ends."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield ProgressBar(ProgressLines(sys.stderr), what)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield ProgressBar(_Bar(progress, progress.add_task(shown(what), total=None, left="")), what)

"""The bar on stderr that shows how far long work is; it is gone when the work is done."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TaskID


class ProgressBar:
    """Its methods are what long work is given to call (paredown.progress)."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def show_share(self, what: str, share: float) -> None:
        """Shows what is being done, and the share of the whole that is done."""
        self._progress.update(self._task, description=what, completed=share, total=1.0)

    def show_count(self, done: int, total: int) -> None:
        """Shows how many steps of how many are done."""
        self._progress.update(self._task, completed=done, total=total)

    def show_note(self, what: str) -> None:
        """Shows what is being done, where nobody knows how much there is to do."""
        self._progress.update(self._task, description=what)


@contextmanager
def progress_bar(what: str) -> Iterator[ProgressBar]:
    """Shows a bar with the description `what` until the block ends."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield ProgressBar(progress, progress.add_task(what, total=None))

"""The errors a user can cause. Each says what is wrong, the value that was seen, and the remedy.

`assert` elsewhere means a bug of ours; nothing here is ever raised for one.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class ParedownError(Exception):
    """Base of all user-facing errors; the command line prints it and exits with code 2."""

    def __init__(self, what: str, *, seen: object, remedy: str) -> None:
        self.what = what
        self.seen = seen
        self.remedy = remedy
        super().__init__(f"{what} (saw: {seen}). {remedy}")


class ConfigError(ParedownError):
    """An option or a configuration file holds a value that is not valid."""


class CheckpointError(ParedownError):
    """A checkpoint folder is incomplete, damaged or contradicts its own config."""


class HubError(CheckpointError):
    """A model could not be fetched from the hub: it is away, refuses, lacks the model, or sends
    what it did not announce."""


class UnsupportedError(ParedownError):
    """A valid thing that this version cannot do."""


class CapacityError(ParedownError):
    """Something does not fit: memory, context, queue. The message shows the arithmetic."""


class RequestError(ParedownError):
    """A generation request that can never be served as asked."""


class OutputError(ParedownError):
    """An output could not be written (it exists already, the disk is full, ...)."""


class InstallationError(ParedownError, ImportError):
    """The installation lacks something, or holds parts that do not fit each other."""


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Puts the tensor, module or layer before what is wrong with it, where that does not say so."""
    try:
        yield
    except (CheckpointError, UnsupportedError) as error:
        if place in error.what:
            raise
        what = f"{place}: {error.what}"
        raise type(error)(what, seen=error.seen, remedy=error.remedy) from error

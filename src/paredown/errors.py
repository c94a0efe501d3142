"""The errors a user can cause. Each says what is wrong, the value that was seen, and the remedy.

`assert` elsewhere means a bug of ours; nothing here is ever raised for one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from paredown.shown import shown

# Names of files and tensors stand in what is wrong; lists of what is known in remedies.
_MAX_WHAT_CHARS = 1_000
_MAX_SEEN_CHARS = 400
_MAX_REMEDY_CHARS = 4_000


class ParedownError(Exception):
    """Base of all user-facing errors; the command line prints it and exits with code 2.

    Whatever a file or a client put into it, it is one line without anything that steers a terminal,
    cut where it is long. `seen` may be any value: of a large one only a part is looked at."""

    def __init__(self, what: str, *, seen: object, remedy: str) -> None:
        self.what = shown(what, _MAX_WHAT_CHARS)
        self.seen = shown(seen, _MAX_SEEN_CHARS)
        self.remedy = shown(remedy, _MAX_REMEDY_CHARS)
        super().__init__(f"{self.what} (saw: {self.seen}). {self.remedy}")


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
        if shown(place) in error.what:
            raise
        what = f"{place}: {error.what}"
        raise type(error)(what, seen=error.seen, remedy=error.remedy) from error

"""The errors a user can cause. Each says what is wrong, the value that was seen, and the remedy.

`assert` elsewhere means a bug of ours; these errors are never raised for one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from paredown.shown import shown

# What is wrong names files and tensors; remedies list what is known.
_MAX_WHAT_CHARS = 1_000
_MAX_SEEN_CHARS = 400
_MAX_REMEDY_CHARS = 4_000


class ParedownError(Exception):
    """Base of all user-facing errors; the command line prints it and exits with code 2.

    The message is always one line, cut to a limit, without terminal control sequences, whatever a
    file or a client put into it. `seen` may be any value; only a part of a large one is read."""

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
    """A model could not be fetched: the hub is unreachable, refuses, lacks the model, or sends
    something other than announced."""


class UnsupportedError(ParedownError):
    """The input is valid but this version cannot handle it."""


class CapacityError(ParedownError):
    """Something does not fit: memory, context, queue. The message shows the arithmetic."""


class RequestError(ParedownError):
    """A generation request can never be served as asked."""


class OutputError(ParedownError):
    """An output could not be written (it exists already, the disk is full, ...)."""


class RetrievalError(ParedownError):
    """An index of vectors is damaged, or it is not the wanted one."""


class TeacherError(ParedownError):
    """A teacher that is asked over HTTP does not answer, refuses, or says nothing of use."""


class TrainingError(ParedownError):
    """A training went astray: a loss or a gradient is no number any more."""


class InstallationError(ParedownError, ImportError):
    """The installation lacks something, or holds parts that do not fit each other."""


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Prefixes errors with the tensor, module or layer at fault, unless they already name it."""
    try:
        yield
    except (CheckpointError, UnsupportedError) as error:
        if shown(place) in error.what:
            raise
        what = f"{place}: {error.what}"
        raise type(error)(what, seen=error.seen, remedy=error.remedy) from error

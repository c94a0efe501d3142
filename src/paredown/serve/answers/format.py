"""Format: how one API writes an answer, as a stream of events and as a whole."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from paredown.serve.answers.event import Event
from paredown.serve.answers.logprobs import LogprobRows
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.usage import Usage
from paredown.serve.answers.whole_answer import WholeAnswer
from paredown.serve.errors import HttpError


class Format(Protocol):
    """The format of one request's answer. What a client puts together from the events of a stream
    is what `whole` says of the same answers."""

    def begin(self) -> list[Event]:
        """Returns the events before the first piece."""
        ...

    def add(self, piece: Piece) -> Iterable[Event]:
        """Returns the events of a piece; those of an answer come in order."""
        ...

    def end(self, usage: Usage) -> list[Event]:
        """Returns the events behind the last piece."""
        ...

    def fail(self, error: HttpError) -> list[Event]:
        """Returns the last events of a stream that cannot go on."""
        ...

    def whole(
        self, answers: Sequence[WholeAnswer], rows: Sequence[LogprobRows], usage: Usage
    ) -> Iterator[str]:
        """Yields the JSON of the reply in pieces. `rows` are those of each answer."""
        ...

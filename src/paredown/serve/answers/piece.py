"""Piece: what a stream has to say of one answer at once, mostly one step's worth."""

from paredown.engine.request_output import RequestOutput
from paredown.models.chat.turn_event import Content, TurnEvent
from paredown.serve.answers.logprobs import LogprobRow, LogprobRows
from paredown.serve.answers.turn_reader import TurnReader


class Piece:
    """The output of one job. `events` say what its text is; in plain text all of it is content."""

    __slots__ = ("events", "finish_reason", "logprobs", "number", "stop")

    def __init__(self, number: int) -> None:
        self.number = number
        self.events: list[TurnEvent] = []
        self.logprobs: list[LogprobRow] = []
        self.finish_reason: str | None = None
        # The stop string that ended the answer.
        self.stop: str | None = None

    @property
    def text(self) -> str:
        """Returns the visible text."""
        return "".join(one.text for one in self.events if isinstance(one, Content))

    def add(self, output: RequestOutput, rows: LogprobRows, reader: TurnReader) -> None:
        """Adds an output; `rows` and `reader` are those of the whole answer, over all its
        pieces."""
        self.events += reader.read(output)
        if output.logprobs:
            self.logprobs += map(rows.next_row, output.logprobs)
        self.finish_reason, self.stop = reader.finish_reason(output), output.stop

    @property
    def is_empty(self) -> bool:
        return not (self.events or self.logprobs or self.finish_reason)

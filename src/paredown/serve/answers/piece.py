"""Piece: what a stream has to say of one answer at once, mostly one step's worth."""

from paredown.engine.packed_logprobs import PackedLogprobs
from paredown.engine.request_output import RequestOutput
from paredown.models.chat.turn_event import Content, TurnEvent
from paredown.serve.answers.logprobs import LogprobRow, LogprobRows
from paredown.serve.answers.turn_reader import TurnReader

NO_LOGPROBS = PackedLogprobs()


class Piece:
    """The output of one job. `events` say what its text is; in plain text all of it is content."""

    __slots__ = (
        "events",
        "finish_reason",
        "logprobs",
        "number",
        "prompt_logprobs",
        "stop",
        "token_ids",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.events: list[TurnEvent] = []
        self.token_ids: list[int] = []
        self.logprobs: list[LogprobRow] = []
        # Those of all prompt tokens but the first; they come with an answer's first output.
        self.prompt_logprobs = NO_LOGPROBS
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
        self.token_ids += output.token_ids
        if output.logprobs:
            self.logprobs += map(rows.next_row, output.logprobs)
        if output.prompt_logprobs:
            self.prompt_logprobs = PackedLogprobs.of(output.prompt_logprobs)
        self.finish_reason, self.stop = reader.finish_reason(output), output.stop

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell yet. The log-probabilities of text that is held back
        wait for it: a reader then finds both in one event."""
        return not (self.events or self.finish_reason)

"""ChoicesFormat: answers as completions and chats have them, a list of choices in a frame."""

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from paredown.serve.answers.event import Event
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.logprobs import LogprobRows
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.token_parts import Parts, TokenParts
from paredown.serve.answers.usage import Body, Usage
from paredown.serve.answers.whole_answer import WholeAnswer
from paredown.serve.errors import HttpError
from paredown.serve.state import ServerState

DONE = Event("[DONE]")


class Choice(Protocol):
    """An endpoint's form of a choice. `choice_json` yields that of a whole reply in pieces, and
    `token_parts` the JSON around each token's log-probability. `chunk_choices` yields what a piece
    becomes in a stream: one choice, or several where it is long."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def choice_json(
        self, answer: WholeAnswer, rows: LogprobRows, parts: TokenParts
    ) -> Iterator[str]: ...

    def token_parts(self, text: str | bytes) -> Parts: ...

    def chunk_choices(self, piece: Piece) -> Iterator[Body]: ...

    def opening(self, number: int) -> Body | None: ...


class ChoicesFormat:
    """One request's answers, each with a number. `tells_usage` adds a last event with the counts
    to a stream, and `tells_timings` has times at the end."""

    def __init__(
        self,
        state: ServerState,
        choice: Choice,
        *,
        num_answers: int,
        tells_usage: bool,
        tells_timings: bool = False,
    ) -> None:
        self._state = state
        self._choice = choice
        self._num_answers = num_answers
        self._tells_usage = tells_usage
        self._tells_timings = tells_timings or state.tells_timings
        self._id = f"{choice.id_prefix}-{secrets.token_hex(16)}"
        self._created_s = int(time.time())
        self._before, self._after = self._around(choice.chunk_object)
        if tells_usage:
            self._after = self._after[:-1] + ',"usage":null}'

    def begin(self) -> list[Event]:
        openings = map(self._choice.opening, range(self._num_answers))
        return [self._chunk(one) for one in openings if one is not None]

    def add(self, piece: Piece) -> Iterator[Event]:
        return map(self._chunk, self._choice.chunk_choices(piece))

    def end(self, usage: Usage) -> list[Event]:
        counts = self._counts(usage, tells_usage=self._tells_usage)
        if not counts:
            return [DONE]
        before, after = self._around(self._choice.chunk_object)
        return [Event(f"{before}[]{after[:-1]},{to_json(counts)[1:]}"), DONE]

    def fail(self, error: HttpError) -> list[Event]:
        return [Event.of(error.body()), DONE]

    def whole(
        self, answers: Sequence[WholeAnswer], rows: Sequence[LogprobRows], usage: Usage
    ) -> Iterator[str]:
        choice = self._choice
        before, after = self._around(choice.whole_object)
        parts = self._state.token_parts_of(choice.id_prefix, choice.token_parts)
        yield before + "["
        for answer, own_rows in zip(answers, rows, strict=True):
            if answer.number:
                yield ","
            yield from choice.choice_json(answer, own_rows, parts)
        yield f"]{after[:-1]},{to_json(self._counts(usage))[1:]}"

    def _counts(self, usage: Usage, *, tells_usage: bool = True) -> Body:
        """Returns the last fields of a reply, or of a stream."""
        counts: Body = {"usage": usage.body()} if tells_usage else {}
        if self._tells_timings:
            counts["timings"] = usage.timings()
        return counts

    def _chunk(self, choice: Body) -> Event:
        return Event(f"{self._before}[{to_json(choice)}]{self._after}")

    def _around(self, kind: str) -> tuple[str, str]:
        """Returns the JSON before and after the list of choices."""
        frame = {
            "id": self._id,
            "object": kind,
            "created": self._created_s,
            "model": self._state.model_name,
            "choices": [],
        }
        before, after = to_json(frame).rsplit("[]", 1)
        return before, after

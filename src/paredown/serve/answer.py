"""Answer: the jobs of one HTTP request on their way to a whole reply or a stream of pieces.

The two endpoints differ in how a piece looks, which is what a Format says; the rest is here.
"""

import secrets
import time
from collections.abc import AsyncIterator
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.engine.request_output import RequestOutput
from paredown.engine.worker import Job, Session
from paredown.serve.disconnect import run_until_disconnect
from paredown.serve.errors import HttpError
from paredown.serve.logprobs import LogprobRow, LogprobRows
from paredown.serve.sse import EventStream
from paredown.serve.state import ServerState

Body = dict[str, object]


class Piece:
    """What one job has given: in a whole reply all of it, in a stream one step's worth."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.text = ""
        self.logprobs: list[LogprobRow] = []
        self.finish_reason: str | None = None

    def add(self, output: RequestOutput, rows: LogprobRows) -> None:
        """`rows` are those of the whole answer, in all its pieces."""
        self.text += output.text
        self.logprobs += map(rows.next_row, output.logprobs)
        self.finish_reason = output.finish_reason


class Format(Protocol):
    """How an endpoint writes."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def choice(self, piece: Piece) -> Body: ...

    def chunk_choice(self, piece: Piece) -> Body: ...

    def opening(self, number: int) -> Body | None: ...


class Answer:
    """`num_prompt_tokens` counts each prompt once, however many choices it has."""

    def __init__(
        self, state: ServerState, shape: Format, jobs: list[Job], *, num_prompt_tokens: int
    ) -> None:
        self._state = state
        self._shape = shape
        self._jobs = jobs
        self._num_answers = sum(job.params.n for job in jobs)
        self._num_prompt_tokens = num_prompt_tokens
        self._num_generated_tokens = 0
        self._id = f"{shape.id_prefix}-{secrets.token_hex(16)}"
        self._created_s = int(time.time())

    async def respond(self, request: Request, *, stream: bool, usage: bool) -> Response:
        """The reply; what the engine refuses comes as an error status, in a stream too."""
        session = self._state.worker.open(self._jobs)
        is_streaming = False
        try:
            if not stream:
                body = await run_until_disconnect(request.receive, self._whole(session))
                return JSONResponse(body)
            await run_until_disconnect(request.receive, session.start())
            is_streaming = True
        finally:
            if not is_streaming:
                self._state.worker.close(session)
        return EventStream(
            self._chunks(session, usage), close=lambda: self._state.worker.close(session)
        )

    async def _whole(self, session: Session) -> Body:
        pieces = [Piece(number) for number in range(self._num_answers)]
        rows = self._logprob_rows()
        async for number, output in session.outputs():
            self._note(output)
            pieces[number].add(output, rows[number])
        choices = [self._shape.choice(piece) for piece in pieces]
        return {**self._frame(self._shape.whole_object, choices), "usage": self._usage()}

    async def _chunks(self, session: Session, usage: bool) -> AsyncIterator[Body]:
        extra: Body = {"usage": None} if usage else {}
        for number in range(self._num_answers):
            if (opening := self._shape.opening(number)) is not None:
                yield {**self._frame(self._shape.chunk_object, [opening]), **extra}
        rows = self._logprob_rows()
        async for number, output in session.outputs():
            self._note(output)
            if not (output.text or output.logprobs or output.finish_reason):
                continue
            piece = Piece(number)
            piece.add(output, rows[number])
            choice = self._shape.chunk_choice(piece)
            yield {**self._frame(self._shape.chunk_object, [choice]), **extra}
        if usage:
            yield {**self._frame(self._shape.chunk_object, []), "usage": self._usage()}

    def _logprob_rows(self) -> list[LogprobRows]:
        tokenizer = self._state.tokenizer
        return [
            LogprobRows(tokenizer, job.prompt_token_ids)
            for job in self._jobs
            for _ in range(job.params.n)
        ]

    def _note(self, output: RequestOutput) -> None:
        """Counts; raises HttpError for a job that did not come to its own end."""
        self._num_generated_tokens += len(output.token_ids)
        if output.finish_reason == "error" and output.is_request_fault:
            raise HttpError(400, output.error or "the request failed", code="no_token_allowed")
        if output.finish_reason == "error":
            raise HttpError(500, output.error or "the model failed", code="model_failed")
        if output.finish_reason == "cancelled":
            raise HttpError(503, "the server is stopping", code="unavailable")

    def _frame(self, kind: str, choices: list[Body]) -> Body:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created_s,
            "model": self._state.model_name,
            "choices": choices,
        }

    def _usage(self) -> Body:
        return {
            "prompt_tokens": self._num_prompt_tokens,
            "completion_tokens": self._num_generated_tokens,
            "total_tokens": self._num_prompt_tokens + self._num_generated_tokens,
        }

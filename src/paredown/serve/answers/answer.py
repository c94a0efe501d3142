"""Answer: runs the jobs of one HTTP request and sends a whole reply or a stream of pieces.

The two endpoints differ only in the format of a piece, which a Format defines.
"""

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.engine.packed_logprobs import PackedLogprobs
from paredown.engine.request_output import RequestOutput
from paredown.engine.worker import Job, Session
from paredown.serve.answers.json_stream import json_stream, to_json
from paredown.serve.answers.logprobs import LogprobRow, LogprobRows
from paredown.serve.answers.sse import event_stream
from paredown.serve.answers.token_parts import Parts, TokenParts
from paredown.serve.errors import HttpError
from paredown.serve.intake.admission import Admission
from paredown.serve.intake.disconnect import run_until_disconnect
from paredown.serve.intake.pacer import Breath
from paredown.serve.state import ServerState

Body = dict[str, object]
# Replies with at most this many log-probabilities and characters are written at once, in 1 ms.
MAX_INLINE_LOGPROBS = 512
MAX_INLINE_CHARS = 2**17


class Piece:
    """The output of one job: all of it in a whole reply, one step's worth in a stream."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.text = ""
        self.logprobs: list[LogprobRow] = []
        self.finish_reason: str | None = None

    def add(self, output: RequestOutput, rows: LogprobRows) -> None:
        """Adds an output; `rows` are those of the whole answer, over all its pieces."""
        self.text += output.text
        self.logprobs += map(rows.next_row, output.logprobs)
        self.finish_reason = output.finish_reason


class WholeAnswer:
    """All output of one job, packed until it is written."""

    def __init__(self, number: int, prompt_token_ids: list[int]) -> None:
        self.number = number
        self.prompt_token_ids = prompt_token_ids
        self.logprobs = PackedLogprobs()
        self.finish_reason: str | None = None
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def num_chars(self) -> int:
        return sum(map(len, self._texts))

    def add(self, output: RequestOutput) -> None:
        self._texts.append(output.text)
        if output.logprobs:
            self.logprobs.extend(output.logprobs)
        self.finish_reason = output.finish_reason

    def as_piece(self, rows: LogprobRows) -> Piece:
        piece = Piece(self.number)
        piece.text, piece.finish_reason = self.text, self.finish_reason
        if self.logprobs:
            piece.logprobs += map(rows.next_row, self.logprobs)
        return piece


class Format(Protocol):
    """An endpoint's output format. `choice_json` yields the JSON of `choice` in pieces, and
    `token_parts` the JSON around each token's log-probability."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def choice(self, piece: Piece) -> Body: ...

    def choice_json(
        self, answer: WholeAnswer, rows: LogprobRows, parts: TokenParts
    ) -> Iterator[str]: ...

    def token_parts(self, text: str | bytes) -> Parts: ...

    def chunk_choice(self, piece: Piece) -> Body: ...

    def opening(self, number: int) -> Body | None: ...


class Answer:
    """One request's answer. `num_prompt_tokens` counts each prompt once, however many choices it
    has."""

    def __init__(
        self,
        state: ServerState,
        shape: Format,
        jobs: list[Job],
        *,
        admission: Admission,
        stream: bool,
        usage: bool,
    ) -> None:
        self._state = state
        self._shape = shape
        self._jobs = jobs
        self._admission = admission
        self._is_stream, self._tells_usage = stream, usage
        self._num_answers = sum(job.params.n for job in jobs)
        self._num_prompt_tokens = sum(len(job.prompt_token_ids) for job in jobs)
        self._num_generated_tokens = 0
        self._id = f"{shape.id_prefix}-{secrets.token_hex(16)}"
        self._created_s = int(time.time())

    async def respond(self, request: Request) -> Response:
        """Returns the reply. If the engine refuses, that is an error status, for streams too. The
        admission is closed once everything is sent, and on any failure."""
        session, close = self._admission.session, self._admission.close
        is_sending = False
        try:
            self._state.worker.submit(session, self._jobs)
            if self._is_stream:
                await run_until_disconnect(request.receive, session.start())
                is_sending = True
                return event_stream(self._chunks(session), close=close)
            answers = await run_until_disconnect(request.receive, self._whole(session))
            if self._is_short(answers):
                return JSONResponse(self._body(answers))
            is_sending = True
            return json_stream(self._state.intake.pacer.pieces(self._json(answers)), close=close)
        finally:
            if not is_sending:
                close()

    async def _whole(self, session: Session) -> list[WholeAnswer]:
        owners = [job for job in self._jobs for _ in range(job.params.n)]
        answers = [WholeAnswer(i, job.prompt_token_ids) for i, job in enumerate(owners)]
        async for number, output in session.outputs():
            self._note(output)
            answers[number].add(output)
        return answers

    def _is_short(self, answers: list[WholeAnswer]) -> bool:
        return (
            sum(one.logprobs.num_tokens for one in answers) <= MAX_INLINE_LOGPROBS
            and sum(one.num_chars for one in answers) <= MAX_INLINE_CHARS
        )

    def _body(self, answers: list[WholeAnswer]) -> Body:
        pieces = map(WholeAnswer.as_piece, answers, self._logprob_rows())
        choices = [self._shape.choice(piece) for piece in pieces]
        return {**self._frame(self._shape.whole_object, choices), "usage": self._usage()}

    def _json(self, answers: list[WholeAnswer]) -> Iterator[str]:
        """Yields the JSON of `_body` in pieces."""
        before, after = to_json(self._frame(self._shape.whole_object, [])).rsplit("[]", 1)
        parts = self._state.token_parts_of(self._shape.id_prefix, self._shape.token_parts)
        yield before + "["
        for answer, rows in zip(answers, self._logprob_rows(), strict=True):
            if answer.number:
                yield ","
            yield from self._shape.choice_json(answer, rows, parts)
        yield "]" + after[:-1] + ',"usage":' + to_json(self._usage()) + "}"

    async def _chunks(self, session: Session) -> AsyncIterator[Body]:
        extra: Body = {"usage": None} if self._tells_usage else {}
        for number in range(self._num_answers):
            if (opening := self._shape.opening(number)) is not None:
                yield {**self._frame(self._shape.chunk_object, [opening]), **extra}
        rows, breath = self._logprob_rows(), Breath()
        async for number, output in session.outputs():
            await breath.take()
            self._note(output)
            if not (output.text or output.logprobs or output.finish_reason):
                continue
            piece = Piece(number)
            piece.add(output, rows[number])
            choice = self._shape.chunk_choice(piece)
            yield {**self._frame(self._shape.chunk_object, [choice]), **extra}
        if self._tells_usage:
            yield {**self._frame(self._shape.chunk_object, []), "usage": self._usage()}

    def _logprob_rows(self) -> list[LogprobRows]:
        tokenizer = self._state.tokenizer
        return [
            LogprobRows(tokenizer, job.prompt_token_ids)
            for job in self._jobs
            for _ in range(job.params.n)
        ]

    def _note(self, output: RequestOutput) -> None:
        """Counts an output; raises HttpError for a job that did not finish by itself."""
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

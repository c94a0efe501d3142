"""Answer: runs the jobs of one HTTP request and sends a whole reply or a stream of events.

Endpoints differ in the Format alone, which writes both.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.request_output import RequestOutput
from paredown.engine.worker import Job, Session
from paredown.errors import ParedownError
from paredown.serve.answers.event import Event
from paredown.serve.answers.format import Format
from paredown.serve.answers.json_stream import json_stream
from paredown.serve.answers.logprobs import LogprobRows
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.sse import event_stream
from paredown.serve.answers.turn_reader import PlainReader, TurnReader
from paredown.serve.answers.usage import Usage
from paredown.serve.answers.whole_answer import WholeAnswer
from paredown.serve.errors import HttpError, as_http_error
from paredown.serve.intake.admission import Admission
from paredown.serve.intake.disconnect import run_until_disconnect
from paredown.serve.intake.pacer import Breath
from paredown.serve.state import ServerState
from paredown.serve.watch.request_record import RequestRecord

# Replies with at most this many log-probabilities and characters are written at once, in 1 ms.
MAX_INLINE_LOGPROBS = 512
MAX_INLINE_CHARS = 2**17


class Answer:
    """One request's answer. `make_reader` gives each answer its reader, and `headers` go with the
    reply."""

    def __init__(
        self,
        state: ServerState,
        shape: Format,
        jobs: list[Job],
        *,
        admission: Admission,
        stream: bool,
        make_reader: Callable[[], TurnReader] = PlainReader,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._state = state
        self._shape = shape
        self._jobs = jobs
        self._admission = admission
        self._is_stream = stream
        self._readers = [make_reader() for job in jobs for _ in range(job.params.n)]
        self._headers = headers
        self._usage = Usage(sum(len(job.prompt_token_ids) for job in jobs))

    async def respond(self, request: Request) -> Response:
        """Returns the reply. If the engine refuses, that is an error status, for streams too. The
        admission is closed once everything is sent, and on any failure."""
        self._record = RequestRecord.of(request.scope)
        session, close = self._admission.session, self._admission.close
        is_sending = False
        try:
            self._state.worker.submit(session, self._jobs)
            for job in self._jobs:
                self._state.answer_stats.note_prompt(len(job.prompt_token_ids))
                self._record.note_prompt(len(job.prompt_token_ids))
            if self._is_stream:
                await run_until_disconnect(request.receive, session.start())
                is_sending = True
                return event_stream(self._batches(session), close=close, headers=self._headers)
            answers = await run_until_disconnect(request.receive, self._whole(session))
            pieces = self._shape.whole(answers, self._logprob_rows(), self._counted())
            if _is_short(answers):
                text = "".join(pieces)
                return Response(text, media_type="application/json", headers=self._headers)
            is_sending = True
            paced = self._state.intake.pacer.pieces(pieces)
            return json_stream(paced, close=close, headers=self._headers)
        finally:
            if not is_sending:
                close()

    async def _whole(self, session: Session) -> list[WholeAnswer]:
        answers = [WholeAnswer(i, reader) for i, reader in enumerate(self._readers)]
        async for number, output in session.outputs():
            self._note(output)
            answers[number].add(output)
        return answers

    async def _batches(self, session: Session) -> AsyncIterator[list[Event]]:
        """Yields the events of each batch of outputs, cut where they take long to write."""
        shape, rows, breath = self._shape, self._logprob_rows(), Breath()
        events, pieces = shape.begin(), dict[int, Piece]()
        try:
            async for batch in session.batches():
                breath.begin()
                for number, output in batch:
                    self._note(output)
                    piece = pieces.setdefault(number, Piece(number))
                    piece.add(output, rows[number], self._readers[number])
                    if breath.is_over:
                        yield [*events, *self._written(pieces)]
                        events = []
                        await breath.take()
                events += self._written(pieces)
                if not session.num_unfinished:
                    events += shape.end(self._counted())
                if events:
                    yield events
                    events = []
        except (ParedownError, HttpError) as error:
            fault = error if isinstance(error, HttpError) else as_http_error(error)
            yield [*events, *self._written(pieces), *shape.fail(fault)]

    def _written(self, pieces: dict[int, Piece]) -> Iterable[Event]:
        """Returns the events of the pieces, and forgets the pieces."""
        told = [piece for piece in pieces.values() if not piece.is_empty]
        pieces.clear()
        return [event for piece in told for event in self._shape.add(piece)]

    def _logprob_rows(self) -> list[LogprobRows]:
        tokenizer = self._state.tokenizer
        return [
            LogprobRows(tokenizer, job.prompt_token_ids)
            for job in self._jobs
            for _ in range(job.params.n)
        ]

    def _note(self, output: RequestOutput) -> None:
        """Counts an output; raises HttpError for a job that did not finish by itself."""
        self._usage.num_generated_tokens += len(output.token_ids)
        self._record.note_generated(len(output.token_ids))
        if output.finish_reason == "error" and output.is_request_fault:
            raise HttpError(400, output.error or "the request failed", code="no_token_allowed")
        if output.finish_reason == "error":
            raise HttpError(500, output.error or "the model failed", code="model_failed")
        if output.finish_reason == "cancelled":
            raise HttpError(503, "the server is stopping", code="unavailable")

    def _counted(self) -> Usage:
        """Returns the counts of the answers, all of which have been read."""
        usage = self._usage
        usage.num_reasoning_tokens = sum(one.num_reasoning_tokens for one in self._readers)
        return usage


def _is_short(answers: Sequence[WholeAnswer]) -> bool:
    return (
        sum(one.logprobs.num_tokens for one in answers) <= MAX_INLINE_LOGPROBS
        and sum(one.num_chars for one in answers) <= MAX_INLINE_CHARS
    )

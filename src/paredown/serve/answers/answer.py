"""Answer: runs the jobs of one HTTP request and sends a whole reply or a stream of events.

Endpoints differ in the Format alone, which writes both.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.request_output import RequestOutput
from paredown.engine.session import Job, Session
from paredown.errors import ParedownError
from paredown.serve.answers.event import Event
from paredown.serve.answers.format import Format
from paredown.serve.answers.json_stream import json_stream
from paredown.serve.answers.logprobs import LogprobRows
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.response_cache import Recording, replayed
from paredown.serve.answers.sse import event_stream
from paredown.serve.answers.turn_reader import PlainReader, TurnReader
from paredown.serve.answers.usage import Usage
from paredown.serve.answers.whole_answer import WholeAnswer
from paredown.serve.caller import Caller
from paredown.serve.errors import HttpError, as_http_error
from paredown.serve.intake.admission import Admission
from paredown.serve.intake.disconnect import run_until_disconnect
from paredown.serve.intake.pacer import Breath
from paredown.serve.state import ServerState
from paredown.serve.watch.request_record import RequestRecord

# Replies with at most this many log-probabilities and characters are written at once, in 1 ms.
MAX_INLINE_LOGPROBS = 512
MAX_INLINE_CHARS = 2**17
# How often outputs are collected for a reply that is sent as a whole.
WHOLE_INTERVAL_S = 0.05
# Says whether an answer came from the response cache: hit, miss, or none where it never does.
CACHE_HEADER = "x-response-cache"


class Answer:
    """One request's answer. `make_reader` gives each answer its reader, `headers` go with the
    reply. `num_echoed_chars` counts what the reply repeats of its prompts."""

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
        num_echoed_chars: int = 0,
    ) -> None:
        self._state = state
        self._num_echoed_chars = num_echoed_chars
        self._shape = shape
        self._jobs = jobs
        self._admission = admission
        self._is_stream = stream
        self._readers = [make_reader() for job in jobs for _ in range(job.params.n)]
        self._headers = headers
        self._usage = Usage.of(jobs, state.usage_details)
        self._recording: Recording | None = None

    async def respond(self, request: Request) -> Response:
        """Returns the reply. If the engine refuses, that is an error status, for streams too. The
        admission is closed once everything is sent, and on any failure."""
        self._record = RequestRecord.of(request.scope)
        session, close = self._admission.session, self._admission.close
        is_sending = False
        try:
            headers = {**(self._headers or {}), **self._submit(session, Caller.of(request).scope)}
            for job in self._jobs:
                self._record.note_prompt(len(job.prompt_token_ids))
                if not self._usage.is_kept:
                    self._state.answer_stats.note_prompt(len(job.prompt_token_ids))
            if self._is_stream:
                await run_until_disconnect(request.receive, session.start())
                is_sending = True
                return event_stream(self._batches(session), close=close, headers=headers)
            answers = await run_until_disconnect(request.receive, self._whole(session))
            pieces = self._shape.whole(answers, self._logprob_rows(), self._counted())
            if _is_short(answers, self._num_echoed_chars):
                text = "".join(pieces)
                return Response(text, media_type="application/json", headers=headers)
            is_sending = True
            paced = self._state.intake.pacer.pieces(pieces)
            return json_stream(paced, close=close, headers=headers)
        finally:
            if not is_sending:
                close()

    def _submit(self, session: Session, caller: str) -> dict[str, str]:
        """Hands the jobs to the engine, or their kept answers to the session. Returns the headers
        that tell which."""
        cache = self._state.response_cache
        if cache is None:
            self._state.worker.submit(session, self._jobs)
            return {}
        key, kept = cache.find(self._jobs, caller)
        if kept is not None:
            session.deliver(replayed(self._jobs, kept))
            self._usage.is_kept = True
            return {CACHE_HEADER: "hit"}
        if key is not None:
            self._recording = Recording(cache, key, len(self._readers))
        self._state.worker.submit(session, self._jobs)
        return {CACHE_HEADER: "none" if key is None else "miss"}

    async def _whole(self, session: Session) -> list[WholeAnswer]:
        answers = [WholeAnswer(i, reader) for i, reader in enumerate(self._readers)]
        async for batch in session.batches(lambda: WHOLE_INTERVAL_S):
            for number, output in batch:
                self._note(number, output)
                answers[number].add(output)
        return answers

    async def _batches(self, session: Session) -> AsyncIterator[list[Event]]:
        """Yields the events of each batch of outputs, cut where they are long or take long to
        write."""
        shape, rows, breath = self._shape, self._logprob_rows(), Breath()
        events, pieces = shape.begin(), dict[int, Piece]()
        try:
            async for batch in session.batches(self._state.event_interval):
                breath.begin()
                for number, output in batch:
                    self._note(number, output)
                    piece = pieces.setdefault(number, Piece(number))
                    piece.add(output, rows[number], self._readers[number])
                    await breath.take()
                for event in self._written(pieces):
                    events.append(event)
                    if breath.is_over or len(event.data) >= MAX_INLINE_CHARS:
                        yield events
                        events = []
                        await breath.take()
                if not session.num_unfinished:
                    events += shape.end(self._counted())
                if events:
                    yield events
                    events = []
        except (ParedownError, HttpError) as error:
            fault = error if isinstance(error, HttpError) else as_http_error(error)
            yield [*events, *self._written(pieces), *shape.fail(fault)]

    def _written(self, pieces: dict[int, Piece]) -> Iterator[Event]:
        """Yields the events of the pieces, and forgets the pieces but those of which nothing can be
        told yet."""
        told = [piece for piece in pieces.values() if not piece.is_empty]
        for piece in told:
            del pieces[piece.number]
        for piece in told:
            yield from self._shape.add(piece)

    def _logprob_rows(self) -> list[LogprobRows]:
        tokenizer, is_apart = self._state.tokenizer, self._state.is_encoder_decoder
        return [
            LogprobRows(tokenizer, [] if is_apart else job.prompt_token_ids)
            for job in self._jobs
            for _ in range(job.params.n)
        ]

    def _note(self, number: int, output: RequestOutput) -> None:
        """Counts an output; raises HttpError for a job that did not finish by itself."""
        self._usage.add(number, output)
        self._record.note_generated(len(output.token_ids))
        if self._recording is not None:
            self._recording.add(number, output)
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


def _is_short(answers: Sequence[WholeAnswer], num_more_chars: int) -> bool:
    return (
        sum(one.num_logprobs for one in answers) <= MAX_INLINE_LOGPROBS
        and sum(one.num_chars for one in answers) + num_more_chars <= MAX_INLINE_CHARS
    )

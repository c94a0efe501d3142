"""AsyncLLM: shares one LLM between the tasks of an event loop and batches their requests."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType

from paredown.engine.lent_worker import start_lent, stop_lent
from paredown.engine.llm import LLM, Completion, Prompt
from paredown.engine.prompt import encode_chat
from paredown.engine.request_output import RequestOutput
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.session import Job
from paredown.engine.worker import Worker
from paredown.errors import RequestError
from paredown.models.text.tokenizer import LONG_TEXT_CHARS


class AsyncLLM:
    """Holds `llm` for the duration of an `async with`; a separate thread computes.

    More answers at once than the engine holds (`ScheduleConfig.max_running` and `max_waiting`) are
    refused with QueueFullError. If the thread has died, every caller gets UnavailableError with the
    reason in its `__cause__`. A model that fails in a step ends the answers in that step with
    finish reason "error", as in `LLM.stream`.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._worker: Worker | None = None

    async def __aenter__(self) -> "AsyncLLM":
        """Raises RequestError while the LLM has an unfinished answer or another AsyncLLM."""
        engine = self._llm.lend()
        self._worker = await start_lent(Worker(lambda: engine), self._llm.take_back)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops after the current step; unfinished answers get UnavailableError."""
        worker, self._worker = self._worker, None
        assert worker is not None
        await stop_lent(worker, self._llm.take_back)

    async def generate(
        self, prompt: Prompt, params: SamplingParams | None = None
    ) -> list[Completion]:
        """Returns the `params.n` completions of one prompt. Raises RequestError, CapacityError or
        UnavailableError."""
        params = self._llm.sampling_defaults.params() if params is None else params
        completions = await self._prepare(prompt, params)
        async with aclosing(self._outputs(completions[0].prompt_token_ids, params)) as outputs:
            async for number, output in outputs:
                completions[number].add(output)
        return completions

    async def stream(
        self, prompt: Prompt, params: SamplingParams | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yields the pieces of one answer as they are computed. To cancel it, leave the loop or
        cancel the task; a stream kept in a variable needs `aclose`. Raises as `generate` does, and
        RequestError for an `n` above 1."""
        params = self._llm.sampling_defaults.params() if params is None else params
        token_ids = (await self._prepare(prompt, params))[0].prompt_token_ids
        async with aclosing(self._stream(token_ids, params)) as pieces:
            async for piece in pieces:
                yield piece

    async def stream_chat(
        self, messages: list[dict[str, object]], params: SamplingParams | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yields the pieces of the next turn of a conversation. Also raises RequestError when the
        model has no chat template or the template refuses the messages."""
        params = self._llm.sampling_defaults.params() if params is None else params
        token_ids = await asyncio.to_thread(self._encode_chat, messages)
        await self._prepare(token_ids, params)
        async with aclosing(self._stream(token_ids, params)) as pieces:
            async for piece in pieces:
                yield piece

    async def _prepare(self, prompt: Prompt, params: SamplingParams) -> list[Completion]:
        """Encodes a long prompt, or compiles a grammar, in another thread, so that the event loop
        goes on."""
        if len(prompt) < LONG_TEXT_CHARS and params.grammar is None:
            return self._llm.prepare(prompt, params)
        return await asyncio.to_thread(self._llm.prepare, prompt, params)

    def _encode_chat(self, messages: list[dict[str, object]]) -> list[int]:
        return encode_chat(self._llm.tokenizer, messages, self._llm.max_prompt_tokens)

    async def _stream(
        self, token_ids: list[int], params: SamplingParams
    ) -> AsyncGenerator[RequestOutput, None]:
        if params.n > 1:
            raise RequestError(
                "a stream has one answer", seen=f"n {params.n}", remedy="Use generate, or n 1."
            )
        async with aclosing(self._outputs(token_ids, params)) as outputs:
            async for _, output in outputs:
                yield output

    async def _outputs(
        self, token_ids: list[int], params: SamplingParams
    ) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Yields (number of the answer, piece)."""
        worker = self._worker
        if worker is None:
            raise RequestError(
                "the AsyncLLM is not open", seen="no `async with`", remedy="Ask inside of one."
            )
        session = worker.open([Job(token_ids, params)])
        try:
            async with aclosing(session.outputs()) as outputs:
                async for one in outputs:
                    yield one
        finally:
            worker.close(session)

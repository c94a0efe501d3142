"""Engine: requests go in, steps are run, pieces of answers come out.

Not thread-safe: one caller at a time. Every submitted request gets exactly one last output, with a
finish reason, whatever happens to it.
"""

import secrets
import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paredown.engine.detokenize import Detokenizer, StopMatcher
from paredown.engine.executor import Executor, SequenceSlice
from paredown.engine.request import FinishReason, Request
from paredown.engine.sampling.sampler import (
    Logprobs,
    NonFiniteLogitsError,
    compute_logprobs,
    sample_token,
)
from paredown.engine.sampling.sampling_params import ParameterError, SamplingParams
from paredown.engine.schedule.scheduler import Chunk, ScheduleConfig, Scheduler
from paredown.engine.schedule.service import Service
from paredown.errors import RequestError


class EngineTokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def decode(self, token_ids: list[int], /) -> str: ...


@dataclass(slots=True, kw_only=True)
class RequestOutput:
    """What one step added to one request.

    `text` may be empty: a cut character or a possible stop string is held back. `finish_reason` is
    set in the last output of a request, and `error` when that is "error".
    """

    request: Request
    text: str
    token_ids: list[int]
    logprobs: list[Logprobs]
    finish_reason: FinishReason | None = None
    error: str | None = None


@dataclass(slots=True)
class _Reply:
    """The text side of a live request."""

    detokenizer: Detokenizer
    stops: StopMatcher


class Engine:
    """Continuous batching over one executor."""

    def __init__(
        self,
        executor: Executor,
        tokenizer: EngineTokenizer,
        config: ScheduleConfig | None = None,
    ) -> None:
        self.executor = executor
        self.tokenizer = tokenizer
        self.scheduler = Scheduler(
            num_pages=executor.num_pages,
            max_positions=executor.spec.max_positions,
            config=ScheduleConfig() if config is None else config,
        )
        self._requests: dict[int, Request] = {}
        self._replies: dict[int, _Reply] = {}
        # Last outputs of requests that ended between steps.
        self._ended: list[RequestOutput] = []
        self._num_submitted = 0

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to compute or to tell."""
        return bool(self._requests or self._ended)

    @property
    def num_unfinished(self) -> int:
        return len(self._requests)

    def submit(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        service: Service | None = None,
    ) -> Request:
        """Queues a request. Raises RequestError, CapacityError or QueueFullError; then nothing
        was queued and no output will come."""
        self.check(prompt_token_ids, params)
        num_prompt_tokens = len(prompt_token_ids)
        max_tokens = (
            self.scheduler.max_positions if params.max_tokens is None else params.max_tokens
        )
        request = Request(
            id=self._num_submitted,
            params=params,
            num_prompt_tokens=num_prompt_tokens,
            token_ids=list(prompt_token_ids),
            max_total_tokens=num_prompt_tokens + max_tokens,
            seed=secrets.randbits(64) if params.seed is None else params.seed,
            service=Service() if service is None else service,
            arrival_s=time.monotonic(),
        )
        self.scheduler.submit(request)
        self._num_submitted += 1
        self._requests[request.id] = request
        self._replies[request.id] = _Reply(
            Detokenizer(self.tokenizer, request.token_ids), StopMatcher(params.stop)
        )
        return request

    def check(self, prompt_token_ids: list[int], params: SamplingParams) -> None:
        """Raises RequestError or CapacityError for a request that can never be served."""
        self.scheduler.check_prompt(len(prompt_token_ids))
        vocab_size = self.executor.spec.vocab_size
        if (
            prompt_token_ids
            and not 0 <= min(prompt_token_ids) <= max(prompt_token_ids) < vocab_size
        ):
            raise RequestError(
                "the prompt holds a token id that the model does not have",
                seen=next(one for one in prompt_token_ids if not 0 <= one < vocab_size),
                remedy=f"Token ids go from 0 to {vocab_size - 1}.",
            )
        for token_id in params.stop_token_ids:
            if token_id >= vocab_size:
                raise ParameterError(
                    "stop_token_ids",
                    seen=token_id,
                    remedy=f"Token ids go from 0 to {vocab_size - 1}.",
                )

    def cancel(self, request_id: int) -> bool:
        """Ends a live request and frees its pages at once; its last output comes with the next
        step. False when there is no such live request."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        self._ended.append(self._end(request, "cancelled"))
        return True

    def step(self) -> list[RequestOutput]:
        """Runs one step. A failure of the executor ends the requests of this step with "error";
        the engine and all other requests live on."""
        outputs, self._ended = self._ended, []
        plan = self.scheduler.schedule()
        chunks = plan.chunks
        if not chunks:
            return outputs
        slices = [self._slice(chunk) for chunk in chunks]
        try:
            if plan.page_copies:
                self.executor.copy_pages(plan.page_copies)
            logits = self.executor.step(slices)
            num_rows = sum(one.num_logits for one in slices)
            assert logits.shape[0] == num_rows, f"{logits.shape[0]} rows of logits, not {num_rows}"
        except Exception as error:  # the one place where a failing model meets its requests
            message = f"the model failed: {type(error).__name__}: {error}"
            return outputs + [self._end(one.request, "error", message) for one in chunks]
        row = 0
        for chunk, one in zip(chunks, slices, strict=True):
            self.scheduler.advance(
                chunk.request, chunk.num_tokens - len(chunk.request.draft_token_ids)
            )
            if one.num_logits:
                outputs.append(self._extend(chunk.request, logits[row : row + one.num_logits]))
                row += one.num_logits
        return outputs

    def check_integrity(self) -> None:
        """Asserts that the engine and its scheduler agree on who is alive."""
        self.scheduler.check_integrity()
        alive = {one.id for one in (*self.scheduler.running, *self.scheduler.waiting)}
        assert alive == set(self._requests) == set(self._replies)

    def _slice(self, chunk: Chunk) -> SequenceSlice:
        request = chunk.request
        start, end = request.num_computed_tokens, request.num_computed_tokens + chunk.num_tokens
        if request.first_step_s is None:
            request.first_step_s = time.monotonic()
        drafts = request.draft_token_ids
        return SequenceSlice(
            token_ids=request.token_ids[start:end] + drafts,
            start=start,
            pages=request.pages,
            # After the last certain token and after each draft.
            num_logits=1 + len(drafts) if end == request.num_wanted_tokens else 0,
        )

    def _extend(self, request: Request, logits_DV: npt.NDArray[np.float32]) -> RequestOutput:
        """Samples the next token of a request whose tokens are all computed. Row 0 follows the last
        certain token, row d the d-th draft; the drafts are dropped."""
        params, position, logits_V = request.params, len(request.token_ids), logits_DV[0]
        request.draft_token_ids.clear()
        try:
            token_id = sample_token(logits_V, params, seed=request.seed, position=position)
        except NonFiniteLogitsError as error:
            return self._end(request, "error", f"the model failed: {error}")
        request.token_ids.append(token_id)
        if request.first_token_s is None:
            request.first_token_s = time.monotonic()
        logprobs = []
        if params.logprobs is not None:
            logprobs = [compute_logprobs(logits_V, token_id, params.logprobs)]
        reply, text = self._replies[request.id], ""
        is_eos = not params.ignore_eos and token_id in self.tokenizer.eos_token_ids
        is_stopped = is_eos or token_id in params.stop_token_ids
        if not is_stopped:
            text = reply.stops.push(reply.detokenizer.push(token_id))
            is_stopped = reply.stops.is_stopped
        reason: FinishReason | None = "stop" if is_stopped else None
        if reason is None and len(request.token_ids) >= request.max_total_tokens:
            reason = "length"
        if reason is None:
            return RequestOutput(
                request=request, text=text, token_ids=[token_id], logprobs=logprobs
            )
        output = self._end(request, reason)
        output.text, output.token_ids, output.logprobs = text + output.text, [token_id], logprobs
        return output

    def _end(
        self, request: Request, reason: FinishReason, error: str | None = None
    ) -> RequestOutput:
        """Takes a live request out; its last output carries the text that was held back."""
        self.scheduler.finish(request, reason)
        request.finish_s = time.monotonic()
        del self._requests[request.id]
        reply, text = self._replies.pop(request.id), ""
        if not reply.stops.is_stopped:
            text = reply.stops.push(reply.detokenizer.flush()) + reply.stops.flush()
        return RequestOutput(
            request=request,
            text=text,
            token_ids=[],
            logprobs=[],
            finish_reason=reason,
            error=error,
        )

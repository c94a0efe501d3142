"""Engine: requests go in, steps are run, pieces of answers come out.

Not thread-safe: one caller at a time. Every submitted request gets exactly one last output, with a
finish reason, whatever happens to it.
"""

import secrets
import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paredown.engine.detokenize import Detokenizer, StopMatcher
from paredown.engine.executor import Executor, SequenceSlice
from paredown.engine.request import FinishReason, Request
from paredown.engine.sampling.sampler import (
    FAILURES,
    Logprobs,
    RowError,
    SampledRow,
    make_state,
)
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.sampling.token_filter import TokenFilterError, allowed_tokens
from paredown.engine.schedule.scheduler import Chunk, ScheduleConfig, Scheduler
from paredown.engine.schedule.service import Service
from paredown.errors import RequestError
from paredown.kernels.native_sampler import RowStatus, SamplingState


class EngineTokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def decode(self, token_ids: list[int], /) -> str: ...


@dataclass(slots=True, kw_only=True)
class RequestOutput:
    """What one step added to one request.

    `text` may be empty: a cut character or a possible stop string is held back. `finish_reason` is
    set in the last output of a request, and `error` when that is "error"; `is_request_fault` says
    that the request's own settings or token filter caused it, not the model. `prompt_logprobs` come
    with the first token, one for each prompt token but the first.
    """

    request: Request
    text: str
    token_ids: list[int]
    logprobs: list[Logprobs]
    prompt_logprobs: list[Logprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None
    is_request_fault: bool = False


@dataclass(slots=True)
class _Reply:
    """What a live request has beside its tokens and pages."""

    sampling: SamplingState
    detokenizer: Detokenizer
    stops: StopMatcher
    prompt_logprobs: list[Logprobs] = field(default_factory=list)


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
            make_state(
                params,
                seed=request.seed,
                vocab_size=self.executor.spec.vocab_size,
                prompt_token_ids=prompt_token_ids,
                eos_token_ids=self.tokenizer.eos_token_ids,
            ),
            Detokenizer(self.tokenizer, request.token_ids),
            StopMatcher(params.stop),
        )
        return request

    def submit_many(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        service: Service | None = None,
    ) -> list[Request]:
        """`params.n` requests for the same prompt; number i has seed + i. The first computes the
        prompt, and the scheduler lets the others wait for its pages. Raises as `submit` does, and
        then none was queued."""
        self.check(prompt_token_ids, params)
        self.scheduler.check_room(params.n)
        return [self.submit(prompt_token_ids, params.choice(i), service) for i in range(params.n)]

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
        params.check_token_ids(vocab_size)

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
        end, ready, rows = 0, [], []
        for chunk, one in zip(chunks, slices, strict=True):
            begin, end = end, end + one.num_logits
            request, num_drafts = chunk.request, len(chunk.request.draft_token_ids)
            self.scheduler.advance(request, chunk.num_tokens - num_drafts)
            request.draft_token_ids.clear()
            try:
                self._keep_prompt_logprobs(request, logits[begin:end])
                if request.num_computed_tokens == len(request.token_ids):
                    self._filter_tokens(request)
                    ready.append(request)
                    # The row after the last certain token; those after drafts follow it.
                    rows.append(end - 1 - num_drafts)
            except (RowError, TokenFilterError) as error:
                output = self._end(request, "error", str(error))
                output.is_request_fault = isinstance(error, TokenFilterError)
                outputs.append(output)
        states = [self._replies[request.id].sampling for request in ready]
        chosen = logits if len(rows) == len(logits) else logits[rows]
        sampled = self.executor.sampler.sample(chosen, states)
        return outputs + list(map(self._extend, ready, sampled))

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
            num_logits=self._num_logits(request, start, end),
        )

    def _num_logits(self, request: Request, start: int, end: int) -> int:
        """The rows after the last certain token and after each draft; every row of a prompt whose
        tokens are scored, from the first that is not scored yet."""
        if request.params.prompt_logprobs is not None:
            start = max(start, len(self._replies[request.id].prompt_logprobs))
            if start < request.num_prompt_tokens - 1:
                return max(0, end - start)
        is_last = end == request.num_wanted_tokens
        return 1 + len(request.draft_token_ids) if is_last else 0

    def _keep_prompt_logprobs(self, request: Request, logits_RV: npt.NDArray[np.float32]) -> None:
        """Scores the prompt tokens that stand after the rows just computed. Raises RowError."""
        num_top = request.params.prompt_logprobs
        if num_top is None:
            return
        known = self._replies[request.id].prompt_logprobs
        prompt = request.token_ids[: request.num_prompt_tokens]
        following = prompt[len(known) + 1 : len(known) + 1 + len(logits_RV)]
        if following:
            known += self.executor.sampler.logprobs(logits_RV[: len(following)], following, num_top)

    def _filter_tokens(self, request: Request) -> None:
        """Asks the request's own function what may come next. Raises TokenFilterError."""
        token_filter = request.params.token_filter
        if token_filter is None:
            return
        generated = request.token_ids[request.num_prompt_tokens :]
        allowed = allowed_tokens(token_filter, generated, self.executor.spec.vocab_size)
        if allowed is not None:
            self._replies[request.id].sampling.allow_next(allowed)

    def _extend(self, request: Request, sampled: SampledRow) -> RequestOutput:
        """Adds the next token to a request whose tokens are all computed."""
        if sampled.failure is not None:
            output = self._end(request, "error", sampled.failure)
            output.is_request_fault = sampled.failure == FAILURES[RowStatus.NOTHING_ALLOWED]
            return output
        params, token_id = request.params, sampled.token_id
        request.token_ids.append(token_id)
        if request.first_token_s is None:
            request.first_token_s = time.monotonic()
        logprobs = [] if sampled.logprobs is None else [sampled.logprobs]
        reply, text = self._replies[request.id], ""
        is_first = request.num_generated_tokens == 1
        prompt_logprobs = reply.prompt_logprobs if is_first else []
        is_eos = not params.ignore_eos and token_id in self.tokenizer.eos_token_ids
        is_stopped = is_eos or token_id in params.stop_token_ids
        if not is_stopped:
            text = reply.detokenizer.push(token_id)
            # Up to min_tokens a stop string is text like any other.
            if request.num_generated_tokens > params.min_tokens:
                text = reply.stops.push(text)
                is_stopped = reply.stops.is_stopped
        reason: FinishReason | None = "stop" if is_stopped else None
        if reason is None and len(request.token_ids) >= request.max_total_tokens:
            reason = "length"
        if reason is None:
            return RequestOutput(
                request=request,
                text=text,
                token_ids=[token_id],
                logprobs=logprobs,
                prompt_logprobs=prompt_logprobs,
            )
        output = self._end(request, reason)
        output.text, output.token_ids, output.logprobs = text + output.text, [token_id], logprobs
        output.prompt_logprobs = prompt_logprobs
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

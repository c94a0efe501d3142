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

from paredown.engine.detokenize import Detokenizer, StopMatcher, make_detokenizer
from paredown.engine.executor import Executor, SequenceSlice
from paredown.engine.memory.kept_pages import KeptPages
from paredown.engine.request import FinishReason, Request
from paredown.engine.request_output import RequestOutput
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
from paredown.engine.speculate.speculator import Speculator
from paredown.errors import RequestError
from paredown.kernels.native_sampler import RowStatus, SamplingState


class EngineTokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def decode(self, token_ids: list[int], /) -> str: ...


@dataclass(slots=True)
class _Reply:
    """What a live request has beside its tokens and pages."""

    sampling: SamplingState
    detokenizer: Detokenizer
    stops: StopMatcher
    # Any of these ends the answer.
    ending: frozenset[int]
    prompt_logprobs: list[Logprobs] = field(default_factory=list)


@dataclass(slots=True)
class _Turn:
    """A request whose tokens are all computed, in the step under way: `output` is what it gets,
    `row` the row of logits after its last token. It goes on while its tokens are its drafts."""

    request: Request
    reply: _Reply
    row: int
    drafts: list[int]
    output: RequestOutput
    num_accepted: int = 0
    goes_on: bool = True


class Engine:
    """Continuous batching over one executor."""

    def __init__(
        self,
        executor: Executor,
        tokenizer: EngineTokenizer,
        config: ScheduleConfig | None = None,
        speculator: Speculator | None = None,
    ) -> None:
        self.executor = executor
        self.tokenizer = tokenizer
        self.speculator = speculator
        self.scheduler = Scheduler(
            num_pages=executor.num_pages,
            max_positions=executor.spec.max_request_tokens,
            config=ScheduleConfig() if config is None else config,
            kept=KeptPages.of(executor.spec),
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
            make_detokenizer(self.tokenizer, request.token_ids),
            StopMatcher(params.stop),
            params.ending_token_ids(self.tokenizer.eos_token_ids),
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
        if self.speculator is not None:
            max_step_tokens = self.scheduler.config.max_step_tokens
            self.speculator.propose(
                self.scheduler.running,
                self._state_of,
                max_step_tokens,
                is_queued=bool(self.scheduler.waiting),
            )
        start_s = time.perf_counter()
        plan = self.scheduler.schedule()
        chunks = plan.chunks
        if not chunks:
            return outputs
        slices = [self._slice(chunk) for chunk in chunks]
        try:
            if plan.page_copies:
                self.executor.copy_pages(plan.page_copies)
            logits = self.executor.step(slices)
            num_rows = sum([one.num_logits for one in slices])
            assert logits.shape[0] == num_rows, f"{logits.shape[0]} rows of logits, not {num_rows}"
        except Exception as error:  # the one place where a failing model meets its requests
            message = f"the model failed: {type(error).__name__}: {error}"
            return outputs + [self._end(one.request, "error", message) for one in chunks]
        turns = self._advance(chunks, slices, logits, outputs)
        outputs += self._take_tokens(turns, logits)
        if self.speculator is not None:
            seconds = time.perf_counter() - start_s
            self.speculator.observe_step(plan.num_tokens, seconds)
        return outputs

    def check_integrity(self) -> None:
        """Asserts that the engine and its scheduler agree on who is alive."""
        self.scheduler.check_integrity()
        alive = {one.id for one in (*self.scheduler.running, *self.scheduler.waiting)}
        assert alive == set(self._requests) == set(self._replies)

    def _slice(self, chunk: Chunk) -> SequenceSlice:
        request = chunk.request
        start = request.num_computed_tokens
        end = start + chunk.num_tokens
        if request.first_step_s is None:
            request.first_step_s = time.monotonic()
        known, drafts = request.token_ids, request.draft_token_ids
        token_ids = known[start:end]
        if drafts:
            token_ids += drafts
        # The rows after the last certain token and after each draft.
        num_logits = 1 + len(drafts) if end == len(known) + len(drafts) else 0
        if request.params.prompt_logprobs is not None:
            num_logits = self._num_scored(request, start, end) or num_logits
        return SequenceSlice(
            token_ids, start, request.pages, num_logits, request.num_released_pages
        )

    def _num_scored(self, request: Request, start: int, end: int) -> int:
        """Of a prompt whose tokens are scored every row, from the first that is not scored yet; 0
        where nothing is left to be scored."""
        first = max(start, len(self._replies[request.id].prompt_logprobs))
        return max(0, end - first) if first < request.num_prompt_tokens - 1 else 0

    def _advance(
        self,
        chunks: list[Chunk],
        slices: list[SequenceSlice],
        logits: npt.NDArray[np.float32],
        outputs: list[RequestOutput],
    ) -> list[_Turn]:
        """Notes what is computed; a turn for each request that may have its next token."""
        end, turns = 0, list[_Turn]()
        for chunk, one in zip(chunks, slices, strict=True):
            begin, end = end, end + one.num_logits
            request = chunk.request
            drafts = request.draft_token_ids
            if drafts:
                request.draft_token_ids = []
            self.scheduler.advance(request, chunk.num_tokens - len(drafts))
            if request.params.prompt_logprobs is not None:
                try:
                    self._keep_prompt_logprobs(request, logits[begin:end])
                except RowError as error:
                    outputs.append(self._end(request, "error", str(error)))
                    continue
            if request.num_computed_tokens == len(request.token_ids):
                reply, row = self._replies[request.id], end - 1 - len(drafts)
                turns.append(_Turn(request, reply, row, drafts, _nothing_yet(request)))
        return turns

    def _keep_prompt_logprobs(self, request: Request, logits_RV: npt.NDArray[np.float32]) -> None:
        """Scores the prompt tokens that stand after the rows just computed. Raises RowError."""
        num_top = request.params.prompt_logprobs
        assert num_top is not None
        known = self._replies[request.id].prompt_logprobs
        prompt = request.token_ids[: request.num_prompt_tokens]
        following = prompt[len(known) + 1 : len(known) + 1 + len(logits_RV)]
        if following:
            known += self.executor.sampler.logprobs(logits_RV[: len(following)], following, num_top)

    def _take_tokens(
        self, turns: list[_Turn], logits: npt.NDArray[np.float32]
    ) -> list[RequestOutput]:
        """Draws the next token of every request, then another where it was the one guessed, as if
        there had been a step for each."""
        going = turns
        while going := [
            turn
            for turn in going
            if turn.goes_on
            and (turn.request.params.token_filter is None or self._filter_tokens(turn))
        ]:
            rows = [turn.row for turn in going]
            chosen = logits if len(rows) == len(logits) else logits[rows]
            states = [turn.reply.sampling for turn in going]
            sampled = self.executor.sampler.sample(chosen, states)
            for turn, one in zip(going, sampled, strict=True):
                self._extend(turn, one)
        if self.speculator is not None:
            for turn in turns:
                if turn.drafts:
                    self.speculator.observe(turn.request, len(turn.drafts), turn.num_accepted)
            num_tokens = sum(len(turn.output.token_ids) for turn in turns)
            self.speculator.stats.add_tokens(num_tokens, num_requests=len(turns))
        return [turn.output for turn in turns]

    def _state_of(self, request: Request) -> SamplingState:
        return self._replies[request.id].sampling

    def _filter_tokens(self, turn: _Turn) -> bool:
        """Asks the request's own function what may come next. False when that ended it."""
        request = turn.request
        token_filter = request.params.token_filter
        assert token_filter is not None
        generated = request.token_ids[request.num_prompt_tokens :]
        try:
            allowed = allowed_tokens(token_filter, generated, self.executor.spec.vocab_size)
        except TokenFilterError as error:
            self._close(turn, "error", str(error)).is_request_fault = True
            return False
        if allowed is not None:
            turn.reply.sampling.allow_next(allowed)
        return True

    def _extend(self, turn: _Turn, sampled: SampledRow) -> None:
        """Adds the next token to a request and to what this step tells of it."""
        request, output = turn.request, turn.output
        if sampled.failure is not None:
            is_fault = sampled.failure == FAILURES[RowStatus.NOTHING_ALLOWED]
            self._close(turn, "error", sampled.failure).is_request_fault = is_fault
            return
        params, reply, token_id = request.params, turn.reply, sampled.token_id
        request.token_ids.append(token_id)
        output.token_ids.append(token_id)
        if sampled.logprobs is not None:
            output.logprobs.append(sampled.logprobs)
        turn.row += 1
        turn.goes_on = turn.num_accepted < len(turn.drafts) and (
            turn.drafts[turn.num_accepted] == token_id
        )
        if turn.goes_on:  # it is computed, too
            turn.num_accepted += 1
            self.scheduler.advance(request, 1)
        if request.first_token_s is None:
            request.first_token_s = time.monotonic()
            output.prompt_logprobs = reply.prompt_logprobs
        is_stopped = token_id in reply.ending
        if not is_stopped:
            text = reply.detokenizer.push(token_id)
            # Up to min_tokens a stop string is text like any other.
            if params.stop and request.num_generated_tokens > params.min_tokens:
                text = reply.stops.push(text)
                is_stopped = reply.stops.is_stopped
            output.text += text
        if is_stopped:
            self._close(turn, "stop")
        elif len(request.token_ids) >= request.max_total_tokens:
            self._close(turn, "length")

    def _close(self, turn: _Turn, reason: FinishReason, error: str | None = None) -> RequestOutput:
        """Ends a request after what this step has given it so far."""
        output, last = turn.output, self._end(turn.request, reason, error)
        output.text += last.text
        output.finish_reason, output.error = reason, error
        turn.goes_on = False
        return output

    def _end(
        self, request: Request, reason: FinishReason, error: str | None = None
    ) -> RequestOutput:
        """Takes a live request out; its last output carries the text that was held back."""
        self.scheduler.finish(request, reason)
        request.finish_s = time.monotonic()
        if self.speculator is not None:
            self.speculator.forget(request)
        del self._requests[request.id]
        reply, text = self._replies.pop(request.id), ""
        if not reply.stops.is_stopped:
            text = reply.stops.push(reply.detokenizer.flush()) + reply.stops.flush()
        output = _nothing_yet(request)
        output.text, output.finish_reason, output.error = text, reason, error
        return output


def _nothing_yet(request: Request) -> RequestOutput:
    return RequestOutput(request, "", [], [], [])

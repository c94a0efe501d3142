"""Engine: runs steps for the submitted requests and returns pieces of their answers.

Not thread-safe: it allows one caller at a time. Every submitted request gets exactly one last
output with a finish reason, whatever happens to it.
"""

import secrets
import time
from collections.abc import Iterable, Sequence, Sized

import numpy as np
import numpy.typing as npt

from paredown.engine.active_request import ActiveRequest, EngineTokenizer
from paredown.engine.decoder_start import check_unscored, decoder_start
from paredown.engine.draw_limits import DrawLimits
from paredown.engine.engine_step import EngineStep
from paredown.engine.grammar.grammars import Grammars
from paredown.engine.prompt import as_token_ids
from paredown.engine.request import FinishReason, Request
from paredown.engine.request_output import RequestOutput
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import Scheduler
from paredown.engine.schedule.service import Service
from paredown.engine.schedule.step_plan import Chunk
from paredown.engine.speculate.speculator import Speculator
from paredown.engine.step_meter import StepMeter
from paredown.executors.protocol import Executor
from paredown.executors.sampler import NOTHING_ALLOWED, RowError, SampledToken, SamplingState
from paredown.spec.kept_pages import KeptPages


class Engine:
    """Continuous batching over one executor."""

    def __init__(
        self,
        executor: Executor,
        tokenizer: EngineTokenizer,
        config: ScheduleConfig | None = None,
        speculator: Speculator | None = None,
        *,
        num_mask_threads: int = 1,
    ) -> None:
        self.executor = executor
        self.tokenizer = tokenizer
        self.speculator = speculator
        self.scheduler = Scheduler(
            num_pages=executor.num_pages,
            max_positions=executor.context.max_request_tokens,
            config=ScheduleConfig() if config is None else config,
            kept=KeptPages.of(executor.context),
            switch_tokens=executor.spec.rotary_switch,
            has_encoder=executor.spec.encoder is not None,
        )
        # The token that the decoder of an encoder-decoder begins with.
        self._start_token_id: int | None = None
        if executor.spec.encoder is not None:
            self._start_token_id = decoder_start(tokenizer, executor.spec.vocab_size)
        vocab_size = executor.spec.vocab_size
        self.grammars = Grammars(tokenizer, vocab_size)
        self._limits = DrawLimits(self.grammars, vocab_size, num_mask_threads)
        self.meter = StepMeter(executor.spec.windows)
        self._active: dict[int, ActiveRequest] = {}
        # The last outputs of requests that ended between steps.
        self._ended: list[RequestOutput] = []
        self._last = EngineStep()
        # The number of coming steps without speculation, and tokens and seconds of those past.
        self._num_rest_steps = 0
        self._rested: list[tuple[int, float]] = []
        self._num_submitted = 0

    @property
    def has_work(self) -> bool:
        """Returns whether `step` has anything to compute or report."""
        return bool(self._active or self._ended)

    @property
    def num_unfinished(self) -> int:
        return len(self._active)

    def submit(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        service: Service | None = None,
    ) -> Request:
        """Queues a request. Raises RequestError, CapacityError or QueueFullError, in which case
        nothing was queued and no output follows."""
        token_ids = self.check(prompt_token_ids, params)
        return self._queue([self._activate(token_ids, params, service)])[0]

    def submit_many(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        service: Service | None = None,
    ) -> list[Request]:
        """Queues `params.n` requests for one prompt; request i has seed + i. The first computes the
        prompt and the others continue from its pages. Raises as `submit` does, and then queues
        none."""
        token_ids = self.check(prompt_token_ids, params)
        choices = [params.choice(i) for i in range(params.n)]
        return self._queue([self._activate(token_ids, one, service) for one in choices])

    def fork(self, parent: Request, token_id: int) -> Request:
        """Returns a request with the settings of `parent` that continues after its computed tokens
        and `token_id`. The parent must have ended with `keeps_pages` set, which the new request
        inherits. Call `scheduler.drop` when it will be forked no more."""
        token_ids = [*parent.token_ids[: parent.num_computed_tokens], token_id]
        live = self._make(token_ids, parent.params, parent.service, parent.encoder_token_ids)
        request = live.request
        request.keeps_pages = True
        self.scheduler.fork(parent, request)
        self._active[request.id] = live
        return request

    def check(self, prompt_token_ids: Iterable[int], params: SamplingParams) -> list[int]:
        """Returns the prompt as plain integers. Raises RequestError or CapacityError for a request
        that can never be served."""
        vocab_size = self.executor.spec.vocab_size
        if isinstance(prompt_token_ids, Sized):  # before anything is done for each of them
            self.scheduler.limits.check_prompt(len(prompt_token_ids))
        token_ids = as_token_ids(prompt_token_ids, vocab_size)
        self.scheduler.limits.check_prompt(len(token_ids))
        params.check_token_ids(vocab_size)
        if params.grammar is not None:
            self.grammars.compile(params.grammar)
        if self._start_token_id is not None:
            check_unscored(params.prompt_logprobs)
        return token_ids

    def cancel(self, request_id: int) -> bool:
        """Ends a live request and frees its pages at once; its last output comes with the next
        step. Returns False when no such request is live."""
        live = self._active.get(request_id)
        if live is None:
            return False
        live.output = None
        self._ended.append(self._end(live, "cancelled"))
        return True

    def step(self) -> list[RequestOutput]:
        """Runs one step. If the executor fails, the requests of this step end with "error"; the
        engine and all other requests continue."""
        outputs, self._ended = self._ended, []
        speculator, is_resting = self.speculator, self._num_rest_steps > 0
        if is_resting:
            self._num_rest_steps -= 1
        elif speculator is not None:
            self._propose(speculator)
        elif self._limits.draft_forced(self.scheduler.running, self._active):
            self.scheduler.expect_drafts()
        start_s = time.perf_counter()
        plan = self.scheduler.schedule()
        if not plan.chunks:
            return outputs
        is_repeated = plan.is_repeated and self._last.is_plain
        step = self._last = self._begin_again() if is_repeated else self._begin(plan.chunks)
        try:
            if plan.page_copies:
                self.executor.copy_pages(plan.page_copies)
            if is_repeated:
                logits = self.executor.step_again(step.token_ids)
            else:
                logits = self.executor.step(step.slices)
            num_rows = step.num_rows
            assert len(logits) == num_rows, f"{len(logits)} rows of logits, not {num_rows}"
        except Exception as error:  # the only place where requests meet a failing model
            message = f"the model failed: {type(error).__name__}: {error}"
            return outputs + self._fail(plan.chunks, step.active, message)
        model_s = time.perf_counter() - start_s
        if is_repeated:
            self.meter.add_again(model_s)
        else:
            self.meter.add(step.slices, model_s)
        if not step.is_plain:
            step.turns = self._score_and_fork(step.active, logits, outputs)
        outputs += self._take_tokens(step, logits)
        if speculator is not None:
            seconds = time.perf_counter() - start_s
            if is_resting:
                self._rested.append((plan.num_tokens, seconds))
            else:
                self._num_rest_steps = speculator.observe_step(plan.num_tokens, seconds)
        return outputs

    def _propose(self, speculator: Speculator) -> None:
        """Requests drafts for the next step."""
        speculator.observe_rest(self._rested)
        self._rested.clear()
        if speculator.propose(
            self.scheduler.running,
            self._state_of,
            self.scheduler.config.max_step_tokens,
            is_queued=bool(self.scheduler.waiting),
        ):
            self._limits.cut_drafts(self._active[one.id] for one in self.scheduler.running)
            self.scheduler.expect_drafts()

    def check_integrity(self) -> None:
        """Asserts that the engine and its scheduler agree on which requests are live."""
        self.scheduler.check_integrity()
        leaders = (*self.scheduler.running, *self.scheduler.waiting)
        alive = {one.id for leader in leaders for one in (leader, *leader.followers)}
        assert alive == set(self._active)

    def _activate(
        self, prompt_token_ids: list[int], params: SamplingParams, service: Service | None
    ) -> ActiveRequest:
        """Creates a request without queueing it."""
        if self._start_token_id is None:
            return self._make(prompt_token_ids, params, service)
        return self._make([self._start_token_id], params, service, prompt_token_ids)

    def _make(
        self,
        token_ids: list[int],
        params: SamplingParams,
        service: Service | None,
        encoder_token_ids: Sequence[int] = (),
    ) -> ActiveRequest:
        num_prompt_tokens = len(token_ids)
        max_tokens = (
            self.scheduler.max_positions if params.max_tokens is None else params.max_tokens
        )
        request = Request(
            id=self._num_submitted,
            params=params,
            num_prompt_tokens=num_prompt_tokens,
            token_ids=list(token_ids),
            encoder_token_ids=encoder_token_ids,
            max_total_tokens=num_prompt_tokens + max(max_tokens, 1),
            seed=secrets.randbits(64) if params.seed is None else params.seed,
            service=Service() if service is None else service,
            arrival_s=time.monotonic(),
        )
        self._num_submitted += 1
        constraint = self._limits.constraint(params)
        return ActiveRequest.of(request, self.tokenizer, self.executor, constraint)

    def _queue(self, active: list[ActiveRequest]) -> list[Request]:
        """Queues the first request as the leader of the others."""
        requests = [one.request for one in active]
        self.scheduler.submit(*requests)
        self._active |= {one.request.id: one for one in active}
        return requests

    def _begin_again(self) -> EngineStep:
        """Prepares the same requests as before, each with the token that it drew."""
        for live in self._last.active:
            live.request.num_computed_tokens += 1
            live.output = None
        return self._last

    def _begin(self, chunks: list[Chunk]) -> EngineStep:
        """Prepares the model's input for these chunks and marks them as computed. This is done
        before the model runs, while the data are still in the processor's caches."""
        step, active, advance = EngineStep(), self._active, self.scheduler.advance
        num_rows = 0
        for request, num_tokens in chunks:
            live = active[request.id]
            part = live.begin(num_tokens, num_rows)
            num_rows += part.num_logits
            step.active.append(live)
            step.slices.append(part)
            advance(request, num_tokens - len(live.drafts))
            if request.num_computed_tokens == len(request.token_ids):
                step.turns.append(live)
                step.states.append(live.sampling)
            if live.drafts or request.followers or live.is_watched:
                step.is_plain = False
        step.num_rows = num_rows
        return step

    def _fail(
        self, chunks: list[Chunk], active: list[ActiveRequest], message: str
    ) -> list[RequestOutput]:
        for live, (request, num_tokens) in zip(active, chunks, strict=True):
            self.scheduler.take_back(request, num_tokens - len(live.drafts))
        return [self._end(one, "error", message) for one in active]

    def _score_and_fork(
        self,
        active: list[ActiveRequest],
        logits: npt.NDArray[np.float32],
        outputs: list[RequestOutput],
    ) -> list[ActiveRequest]:
        """Scores the prompts of requests that asked for it, and ends those that want no more.
        Returns the requests that may draw their next token, including those forked now."""
        turns = list[ActiveRequest]()
        for live in active:
            request = live.request
            if live.prompt_logprobs is not None and not request.is_scored:
                try:
                    live.score_prompt(self.executor.sampler, logits)
                except RowError as error:
                    outputs.append(self._end(live, "error", str(error)))
                    continue
            if request.num_computed_tokens == len(request.token_ids):
                ready = [live]
                if request.followers:
                    ready += self._fork_followers(live)
                if request.params.max_tokens == 0:
                    outputs += [self._end(one, "length") for one in ready]
                else:
                    turns += ready
        return turns

    def _fork_followers(self, live: ActiveRequest) -> list[ActiveRequest]:
        followers = self.scheduler.fork_followers(live.request)
        active = [self._active[one.id] for one in followers]
        for one in active:
            one.follow(live)
        return active

    def _take_tokens(
        self, step: EngineStep, logits: npt.NDArray[np.float32]
    ) -> list[RequestOutput]:
        """Draws the next token of every request. While it matches the draft token, draws another,
        as if each draft token had had its own step."""
        turns, num_failed = step.turns, 0
        if step.is_plain:
            drawn = self.executor.sampler.sample(logits, step.states)
            step.token_ids = drawn.token_ids
            for live, token_id, logprobs, failure in zip(turns, *drawn, strict=True):
                if failure is not None:
                    self._end_without_token(live, failure)
                    num_failed += 1
                elif (reason := live.add_token(token_id, logprobs)) is not None:
                    self._end(live, reason)
        else:
            self._take_runs(turns, logits)
        outputs = [one.output for one in turns if one.output is not None]
        if self.speculator is not None:
            num_tokens = len(turns) - num_failed
            if not step.is_plain:
                num_tokens = sum(len(one.token_ids) for one in outputs)
                for live in turns:
                    if live.drafts:
                        num_drafts, num_accepted = len(live.drafts), live.num_accepted
                        live.request.num_drafted_tokens += num_drafts
                        live.request.num_accepted_tokens += num_accepted
                        self.speculator.observe(live.request, num_drafts, num_accepted)
            self.speculator.stats.add_tokens(num_tokens, num_requests=len(turns))
        return outputs

    def _take_runs(self, turns: list[ActiveRequest], logits: npt.NDArray[np.float32]) -> None:
        """Draws every request's run of tokens, in as many passes as token filters ask for."""
        going = turns
        while going:
            ready, failed = self._limits.apply(going)
            for live, failure in failed:
                self._end(live, "error", failure).is_request_fault = True
            runs = self.executor.sampler.sample_runs(
                logits,
                [one.live.row for one in ready],
                [one.draft for one in ready],
                [one.live.sampling for one in ready],
            )
            drawn = zip(ready, runs, strict=True)
            going = [one.live for one, run in drawn if self._add_run(one.live, run)]

    def _add_run(self, live: ActiveRequest, run: list[SampledToken]) -> bool:
        """Returns whether the request may draw from another row."""
        is_computed = False
        for token_id, logprobs, failure in run:
            if failure is not None:
                self._end_without_token(live, failure)
                return False
            reason = live.add_token(token_id, logprobs)
            is_computed = bool(live.drafts) and live.accept(token_id)
            if is_computed:
                self.scheduler.advance(live.request, 1)
            if reason is not None:
                self._end(live, reason)
                return False
        return is_computed

    def _state_of(self, request: Request) -> SamplingState:
        return self._active[request.id].sampling

    def _end_without_token(self, live: ActiveRequest, failure: str) -> None:
        output = self._end(live, "error", failure)
        output.is_request_fault = failure == NOTHING_ALLOWED

    def _end(
        self, live: ActiveRequest, reason: FinishReason, error: str | None = None
    ) -> RequestOutput:
        """Removes a live request; returns its last output."""
        request, output = live.request, live.end(reason, error)
        assert output.finish_reason is not None
        self.scheduler.finish(request, output.finish_reason)
        request.finish_s = time.monotonic()
        if self.speculator is not None:
            self.speculator.forget(request)
        self._limits.forget(live)
        del self._active[request.id]
        return output

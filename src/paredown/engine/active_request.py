"""ActiveRequest: the state of a live request besides its tokens and pages."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from paredown.engine.detokenize import Detokenizer, StopMatcher, make_detokenizer
from paredown.engine.packed_logprobs import PackedLogprobs
from paredown.engine.request import FinishReason, Request
from paredown.engine.request_output import RequestOutput
from paredown.engine.sampling.make_draw_settings import make_draw_settings
from paredown.engine.sampling.sampling_params import TokenFilter
from paredown.errors import ParedownError, RequestError
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.executors.sampler import Logprobs, Sampler, SamplingState

if TYPE_CHECKING:  # few requests have a grammar, and the library takes memory
    from paredown.engine.grammar.constraint import Constraint


class EngineTokenizer(Protocol):
    """The part of a tokenizer that the engine uses."""

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    @property
    def decoder_start_token_id(self) -> int | None:
        """The token with which the decoder of an encoder-decoder begins; read for no other."""
        ...

    def decode(self, token_ids: list[int], /) -> str: ...


@dataclass(slots=True)
class ActiveRequest:
    """The fields that every step reads, in one object so that a step touches few objects per
    request. `row` and those after it belong to the current step."""

    request: Request
    sampling: SamplingState
    detokenizer: Detokenizer
    # Each of these tokens ends the answer.
    ending: frozenset[int]
    part: SequenceSlice
    # None unless requested.
    stops: StopMatcher | None
    token_filter: TokenFilter | None
    constraint: "Constraint | None"
    prompt_logprobs: PackedLogprobs | None
    # Whether any of the last three is set, or no token is drawn.
    is_watched: bool

    # The row of logits to draw from next, the draft tokens that were computed, and how many of them
    # were accepted.
    row: int = 0
    drafts: Sequence[int] = ()
    num_accepted: int = 0
    # The output of the current step so far.
    output: RequestOutput | None = None
    # The reason why its tokens could not be decoded.
    failure: str | None = None

    @classmethod
    def of(
        cls,
        request: Request,
        tokenizer: EngineTokenizer,
        executor: Executor,
        constraint: "Constraint | None" = None,
    ) -> "ActiveRequest":
        """Creates the state before the first step. Raises RequestError where the tokenizer fails on
        the prompt."""
        params = request.params
        settings = make_draw_settings(
            params, seed=request.seed, eos_token_ids=tokenizer.eos_token_ids
        )
        return cls(
            request,
            executor.sampler.make_state(settings, request.token_ids, executor.spec.vocab_size),
            _detokenizer(tokenizer, request.token_ids),
            params.ending_token_ids(tokenizer.eos_token_ids),
            SequenceSlice(
                [],
                0,
                request.pages,
                0,
                num_cross_tokens=request.num_encoder_tokens,
                cross_pages=request.cross_pages,
            ),
            StopMatcher(params.stop) if params.stop else None,
            params.token_filter,
            constraint,
            None if params.prompt_logprobs is None else PackedLogprobs(),
            params.token_filter is not None
            or constraint is not None
            or params.prompt_logprobs is not None
            or params.max_tokens == 0,
        )

    def begin(self, num_tokens: int, num_rows: int) -> SequenceSlice:
        """Returns the request's slice of a step: `num_tokens` from the first uncomputed one on,
        drafts included. `num_rows` rows of logits precede its own. Every step returns the same
        object."""
        request, part = self.request, self.part
        if request.first_step_s is None:
            request.first_step_s = time.monotonic()
        known, start = request.token_ids, request.num_computed_tokens
        end, num_known = start + num_tokens, len(known)
        part.token_ids = [known[start]] if num_tokens == 1 else known[start:end]
        part.start = start
        part.num_released_pages = request.num_released_pages
        part.num_text_tokens = num_known
        part.encoder_token_ids = () if start else request.encoder_token_ids
        # One row after the last certain token, and one after each draft.
        part.num_logits = 1 if end >= num_known else 0
        self.drafts, self.output = (), None
        if end > num_known:
            self.drafts, request.draft_token_ids = request.draft_token_ids, ()
            self.num_accepted = 0
            part.token_ids += self.drafts
            part.num_logits += len(self.drafts)
        if self.prompt_logprobs is not None:
            part.num_logits = self._num_scored(start, end) or part.num_logits
        self.row = num_rows + part.num_logits - 1 - len(self.drafts)
        return part

    def score_prompt(self, sampler: Sampler, logits_RV: npt.NDArray[np.float32]) -> None:
        """Scores the prompt tokens that follow the rows just computed; `logits_RV` holds the rows
        of the whole step. Raises RowError."""
        known, num_top = self.prompt_logprobs, self.request.params.prompt_logprobs
        assert known is not None
        assert num_top is not None
        prompt = self.request.token_ids[: self.request.num_prompt_tokens]
        following = prompt[len(known) + 1 : len(known) + 1 + self.part.num_logits]
        if following:
            first = self.row + 1 + len(self.drafts) - self.part.num_logits
            rows_RV = logits_RV[first : first + len(following)]
            known.extend(sampler.logprobs(rows_RV, following, num_top))
        self.request.is_scored = len(known) == len(prompt) - 1

    def follow(self, first: "ActiveRequest") -> None:
        """Shares the row of `first`, which computed and scored the same prompt in the current
        step."""
        self.row, self.prompt_logprobs = first.row, first.prompt_logprobs
        self.request.first_step_s = first.request.first_step_s
        self.request.is_scored = first.request.is_scored

    def add_token(self, token_id: int, logprobs: Logprobs | None) -> FinishReason | None:
        """Adds the next token of the answer to this step's output. Returns the finish reason if it
        is the last. If the tokenizer fails on it, only this answer ends, with "error"."""
        request = self.request
        reason: FinishReason | None = None
        token_ids = request.token_ids
        token_ids.append(token_id)
        if token_id in self.ending:
            text, reason = "", "stop"
        else:
            try:
                text = self.detokenizer.push(token_id)
            except Exception as error:  # a tokenizer came with the model, and may raise anything
                self.failure = _told(error)
                return "error"
            # Before min_tokens, a stop string is ordinary text.
            if self.stops is not None and (
                request.num_generated_tokens > request.params.min_tokens
            ):
                text = self.stops.push(text)
                reason = "stop" if self.stops.is_stopped else None
            if reason is None and len(token_ids) >= request.max_total_tokens:
                reason = "length"
        output = self.output
        if output is None:
            output = self.output = RequestOutput(request, text, [token_id])
        else:
            output.text += text
            output.token_ids.append(token_id)
        if logprobs is not None:
            output.logprobs = [*output.logprobs, logprobs]
        if request.first_token_s is None:
            request.first_token_s = time.monotonic()
            output.prompt_logprobs = self.prompt_logprobs or ()
        return reason

    @property
    def generated(self) -> list[int]:
        """Returns the tokens of the answer so far."""
        return self.request.token_ids[self.request.num_prompt_tokens :]

    @property
    def next_drafts(self) -> Sequence[int]:
        """Returns the draft tokens after those that were accepted."""
        return self.drafts[self.num_accepted :] if self.num_accepted else self.drafts

    def accept(self, token_id: int) -> bool:
        """Returns whether the token just added equals the next draft token."""
        index = self.num_accepted
        if index == len(self.drafts) or self.drafts[index] != token_id:
            return False
        self.num_accepted += 1
        self.row += 1
        return True

    def end(self, reason: FinishReason, error: str | None = None) -> RequestOutput:
        """Returns the last output: that of the step so far, plus the text that was held back."""
        output = self.output
        if output is None:
            output = self.output = RequestOutput(self.request, "", [])
        if self.failure is None:
            try:
                output.text += self._held_text()
            except Exception as problem:
                self.failure = _told(problem)
        if self.failure is not None and reason in ("stop", "length"):
            reason = "error"
        if self.request.first_token_s is None and reason == "length":
            output.prompt_logprobs = self.prompt_logprobs or ()
        output.finish_reason, output.error = reason, error or self.failure
        if self.stops is not None and reason == "stop":
            output.stop = self.stops.found
        return output

    def _held_text(self) -> str:
        stops = self.stops
        if stops is None:
            return self.detokenizer.flush()
        return "" if stops.is_stopped else stops.push(self.detokenizer.flush()) + stops.flush()

    def _num_scored(self, start: int, end: int) -> int:
        """Returns how many rows of a prompt remain to be scored, from the first unscored one on; 0
        where nothing is left."""
        assert self.prompt_logprobs is not None
        first = max(start, len(self.prompt_logprobs))
        return max(0, end - first) if first < self.request.num_prompt_tokens - 1 else 0


def _detokenizer(tokenizer: EngineTokenizer, token_ids: list[int]) -> Detokenizer:
    try:
        return make_detokenizer(tokenizer, token_ids)
    except (ParedownError, MemoryError):
        raise
    except Exception as error:  # a tokenizer came with the model, and may raise anything
        raise RequestError(
            "the tokenizer failed at the prompt",
            seen=f"{type(error).__name__}: {error}",
            remedy="Send another prompt; if it fails at all of them, use another tokenizer.",
        ) from error


def _told(error: Exception) -> str:
    if isinstance(error, ParedownError):
        return str(error)
    return f"the tokenizer failed: {type(error).__name__}: {error}"

"""Usage: the tokens and the time that an answer took, as each API tells them.

`timings` has the names of llama.cpp's server. Cached tokens are told only where nobody can learn of
others from them, and so is the time in the queue apart from that of the prompt: a prompt that
somebody else sent before takes less time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from paredown.engine.request import Request
from paredown.engine.request_output import RequestOutput
from paredown.engine.session import Job

Body = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class UsageDetails:
    """Details that may be told beside the counts: tokens found in the cache and the time of the
    prompt alone (`tells_prefixes`), and accepted draft tokens (`tells_drafts`)."""

    tells_prefixes: bool = False
    tells_drafts: bool = False


@dataclass(slots=True)
class AnswerTimes:
    """When the first of a request's answers came, began and had its first token, and when the last
    ended, in `time.monotonic()` seconds."""

    arrival_s: float
    first_step_s: float
    first_token_s: float
    finish_s: float

    @classmethod
    def of(cls, request: Request) -> "AnswerTimes":
        """Returns the times of a request that has ended, perhaps before its first step."""
        arrival_s = request.arrival_s
        finish_s = arrival_s if request.finish_s is None else request.finish_s
        first_step_s = finish_s if request.first_step_s is None else request.first_step_s
        first_token_s = finish_s if request.first_token_s is None else request.first_token_s
        return cls(arrival_s, first_step_s, first_token_s, finish_s)

    def joined(self, other: "AnswerTimes") -> "AnswerTimes":
        return AnswerTimes(
            min(self.arrival_s, other.arrival_s),
            min(self.first_step_s, other.first_step_s),
            min(self.first_token_s, other.first_token_s),
            max(self.finish_s, other.finish_s),
        )


@dataclass(slots=True)
class Usage:
    """`num_prompt_tokens` counts each prompt once, however many choices it has, and so does
    `num_cached_tokens` what the prefix cache had of it. `num_reasoning_tokens` are among those
    generated. `is_kept` says that the response cache had the answers."""

    num_prompt_tokens: int
    num_generated_tokens: int = 0
    num_reasoning_tokens: int = 0
    num_cached_tokens: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    is_kept: bool = False
    details: UsageDetails = field(default_factory=UsageDetails)
    # The answers whose requests compute a prompt; the others of a job continue from it.
    _leaders: frozenset[int] = frozenset()
    _times: AnswerTimes | None = None

    @classmethod
    def of(cls, jobs: Sequence[Job], details: UsageDetails) -> "Usage":
        """Returns the usage of jobs of which nothing is computed yet."""
        num_prompt_tokens = sum(len(job.prompt_token_ids) for job in jobs)
        return cls(num_prompt_tokens, details=details, _leaders=frozenset(_leaders(jobs)))

    def add(self, number: int, output: RequestOutput) -> None:
        """Counts an output of answer `number`."""
        self.num_generated_tokens += len(output.token_ids)
        if output.finish_reason is None:
            return
        request = output.request
        self.num_drafted_tokens += request.num_drafted_tokens
        self.num_accepted_tokens += request.num_accepted_tokens
        if number in self._leaders:
            self.num_cached_tokens += request.num_cached_tokens
        times = AnswerTimes.of(request)
        self._times = times if self._times is None else self._times.joined(times)

    @property
    def told_cached_tokens(self) -> int | None:
        """Returns the number of cached tokens; None where it is not told."""
        return self.num_cached_tokens if self.details.tells_prefixes or self.is_kept else None

    def body(self) -> Body:
        """Returns the counts as completions and chats have them."""
        completion: Body = {"reasoning_tokens": self.num_reasoning_tokens}
        if self.details.tells_drafts:
            completion["accepted_prediction_tokens"] = self.num_accepted_tokens
            num_rejected = self.num_drafted_tokens - self.num_accepted_tokens
            completion["rejected_prediction_tokens"] = num_rejected
        body: Body = {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_generated_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_generated_tokens,
            "completion_tokens_details": completion,
        }
        if (num_cached := self.told_cached_tokens) is not None:
            body["prompt_tokens_details"] = {"cached_tokens": num_cached}
        return body

    def response_body(self) -> Body:
        """Returns the counts as a response has them."""
        num_cached = self.told_cached_tokens or 0
        return {
            "input_tokens": self.num_prompt_tokens,
            "input_tokens_details": {"cached_tokens": num_cached, "cache_write_tokens": 0},
            "output_tokens": self.num_generated_tokens,
            "output_tokens_details": {"reasoning_tokens": self.num_reasoning_tokens},
            "total_tokens": self.num_prompt_tokens + self.num_generated_tokens,
        }

    def message_body(self) -> Body:
        """Returns the counts as a message has them: what was cached is no input there."""
        num_cached = self.told_cached_tokens or 0
        return {
            "input_tokens": self.num_prompt_tokens - num_cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": num_cached,
            "output_tokens": self.num_generated_tokens,
        }

    def timings(self) -> Body:
        """Returns the times of answers that have ended. Answers of one request overlap: the
        prompt's time ends with the first token of any, the answers' with the last of all."""
        times = self._times
        assert times is not None
        num_prompt_tokens, begin_s, body = self.num_prompt_tokens, times.arrival_s, Body()
        if self.details.tells_prefixes:
            num_prompt_tokens -= self.num_cached_tokens
            begin_s = times.first_step_s
            body["cache_n"] = self.num_cached_tokens
            body["queue_ms"] = _ms(begin_s - times.arrival_s)
        body |= _rate("prompt", num_prompt_tokens, times.first_token_s - begin_s)
        body |= _rate("predicted", self.num_generated_tokens, times.finish_s - times.first_token_s)
        if self.details.tells_drafts:
            body["draft_n"] = self.num_drafted_tokens
            body["draft_n_accepted"] = self.num_accepted_tokens
        return body


def _leaders(jobs: Sequence[Job]) -> Iterator[int]:
    number = 0
    for job in jobs:
        yield number
        number += job.params.n


def _rate(name: str, num_tokens: int, seconds: float) -> Body:
    seconds = max(seconds, 1e-6)
    return {
        f"{name}_n": num_tokens,
        f"{name}_ms": _ms(seconds),
        f"{name}_per_token_ms": _ms(seconds / max(num_tokens, 1)),
        f"{name}_per_second": round(num_tokens / seconds, 3),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)

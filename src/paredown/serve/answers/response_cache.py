"""ResponseCache: finished answers of deterministic requests, for when the same is asked again.

A request is deterministic at temperature 0 and with a seed: then its answer depends on nothing but
the model, the prompt's tokens and the sampling parameters. These are the key, together with who
asks, so that nobody gets or notices the answers of another. The server's one model is in the key by
the cache's life: it ends with the process.
"""

import hashlib
import time
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from paredown.engine.packed_logprobs import PackedLogprobs
from paredown.engine.request import FinishReason, Request
from paredown.engine.request_output import RequestOutput
from paredown.engine.session import Job
from paredown.errors import ConfigError

# What an answer takes beside its text, tokens and log-probabilities: objects and the key.
ENTRY_BYTES = 1024
# No request's answers take more than this share.
MAX_SHARE = 4


@dataclass(slots=True)
class KeptAnswer:
    """All output of one answer."""

    text: str = ""
    token_ids: "array[int]" = field(default_factory=lambda: array("i"))
    logprobs: PackedLogprobs = field(default_factory=PackedLogprobs)
    prompt_logprobs: PackedLogprobs = field(default_factory=PackedLogprobs)
    finish_reason: FinishReason | None = None
    stop: str | None = None

    @property
    def num_bytes(self) -> int:
        num_text_bytes = 4 * len(self.text) if not self.text.isascii() else len(self.text)
        of_logprobs = self.logprobs.num_bytes + self.prompt_logprobs.num_bytes
        return ENTRY_BYTES + num_text_bytes + 4 * len(self.token_ids) + of_logprobs


class ResponseCache:
    """The answers of the requests asked last, at most `max_bytes` of them. Belongs to one event
    loop."""

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 1:
            raise ConfigError(
                "a response cache holds bytes", seen=max_bytes, remedy="Use 1 or more."
            )
        self.max_bytes = max_bytes
        self.num_requests = self.num_hits = self.num_bytes = 0
        self._kept: OrderedDict[bytes, list[KeptAnswer]] = OrderedDict()

    @property
    def num_kept(self) -> int:
        """Returns of how many requests there are answers."""
        return len(self._kept)

    def find(
        self, jobs: Sequence[Job], caller: str
    ) -> tuple[bytes | None, list[KeptAnswer] | None]:
        """Counts a request of `caller`. Returns its key, None where it is not deterministic, and
        its answers where they are known."""
        self.num_requests += 1
        key = request_key(jobs, caller)
        answers = None if key is None else self._kept.get(key)
        if key is not None and answers is not None:
            self._kept.move_to_end(key)
            self.num_hits += 1
        return key, answers

    def keep(self, key: bytes, answers: list[KeptAnswer]) -> None:
        """Keeps the answers; the least recently asked ones go for them."""
        num_bytes = _num_bytes(answers)
        if num_bytes > self.max_bytes // MAX_SHARE or key in self._kept:
            return
        self._kept[key] = answers
        self.num_bytes += num_bytes
        while self.num_bytes > self.max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.num_bytes -= _num_bytes(dropped)


class Recording:
    """Notes the outputs of a request, and keeps them once all its answers have ended well."""

    def __init__(self, cache: ResponseCache, key: bytes, num_answers: int) -> None:
        self._cache = cache
        self._key = key
        self._answers = [KeptAnswer() for _ in range(num_answers)]
        self._texts: list[list[str]] = [[] for _ in range(num_answers)]
        self._num_unfinished = num_answers

    def add(self, number: int, output: RequestOutput) -> None:
        answer = self._answers[number]
        self._texts[number].append(output.text)
        answer.token_ids.extend(output.token_ids)
        answer.logprobs.extend(output.logprobs)
        if output.prompt_logprobs:
            answer.prompt_logprobs = PackedLogprobs.of(output.prompt_logprobs)
        if output.finish_reason not in ("stop", "length"):
            return
        answer.finish_reason, answer.stop = output.finish_reason, output.stop
        answer.text = "".join(self._texts[number])
        self._num_unfinished -= 1
        if not self._num_unfinished:
            self._cache.keep(self._key, self._answers)


def request_key(jobs: Sequence[Job], caller: str) -> bytes | None:
    """Returns a digest of all that the answers depend on, and of who asks: `caller` with its tenant
    and salt. None where an answer depends on chance."""
    if any(job.params.temperature > 0 and job.params.seed is None for job in jobs):
        return None
    digest = hashlib.blake2b(digest_size=32)
    for job in jobs:
        params = job.params
        named = [(one.name, getattr(params, one.name)) for one in fields(params)]
        told = [(name, sorted(v.items()) if isinstance(v, dict) else v) for name, v in named]
        whose = (caller, job.service.tenant, job.service.salt)
        for part in (
            array("i", job.prompt_token_ids).tobytes(),
            repr(told).encode("utf-8", "surrogatepass"),
            repr(whose).encode("utf-8", "surrogatepass"),
        ):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def replayed(jobs: Sequence[Job], answers: Sequence[KeptAnswer]) -> list[tuple[int, RequestOutput]]:
    """Returns kept answers as the engine would give them, each in one piece."""
    owners = [job for job in jobs for _ in range(job.params.n)]
    return [
        (number, _output(job, answer))
        for number, (job, answer) in enumerate(zip(owners, answers, strict=True))
    ]


def _output(job: Job, answer: KeptAnswer) -> RequestOutput:
    now_s, num_prompt_tokens = time.monotonic(), len(job.prompt_token_ids)
    token_ids = answer.token_ids.tolist()
    request = Request(
        id=-1,
        params=job.params,
        num_prompt_tokens=num_prompt_tokens,
        token_ids=[*job.prompt_token_ids, *token_ids],
        max_total_tokens=num_prompt_tokens + len(token_ids) + 1,
        num_cached_tokens=num_prompt_tokens,
        finish_reason=answer.finish_reason,
        arrival_s=now_s,
        first_step_s=now_s,
        first_token_s=now_s,
        finish_s=now_s,
    )
    return RequestOutput(
        request,
        answer.text,
        token_ids,
        logprobs=answer.logprobs,
        prompt_logprobs=answer.prompt_logprobs,
        finish_reason=answer.finish_reason,
        stop=answer.stop,
    )


def _num_bytes(answers: Sequence[KeptAnswer]) -> int:
    # Answers to one prompt share its log-probabilities; counting them for each errs safely.
    return sum(one.num_bytes for one in answers)

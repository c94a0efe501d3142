"""LLM: offline generation from Python. A model and prompts go in, completions come out."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paredown.engine.detokenize import Detokenizer
from paredown.engine.engine import Engine, RequestOutput
from paredown.engine.native.native_executor import start_loading
from paredown.engine.native.packed_cache import CacheConfig
from paredown.engine.prompt import encode_chat, encode_prompt
from paredown.engine.request import FinishReason
from paredown.engine.sampling.beam_search import Beam, BeamSearchParams, beam_search
from paredown.engine.sampling.sampler import Logprobs
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.scheduler import ScheduleConfig
from paredown.errors import RequestError
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.tokenizer import Tokenizer
from paredown.spec.kv import KVDType

Prompt = str | list[int]


@dataclass(kw_only=True)
class Completion:
    """The answer to one prompt. `token_ids` are the generated ones; `error` is set when
    `finish_reason` is "error", and the rest is what there was before it."""

    prompt: Prompt
    prompt_token_ids: list[int]
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    # One for each prompt token but the first.
    prompt_logprobs: list[Logprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None

    def _add(self, output: RequestOutput) -> None:
        self.text += output.text
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs
        self.prompt_logprobs += output.prompt_logprobs
        self.finish_reason = output.finish_reason
        self.error = output.error


@dataclass(frozen=True, kw_only=True)
class BeamCompletion:
    """One answer of a beam search; see `Beam` (engine/sampling/beam_search.py)."""

    text: str
    token_ids: list[int]
    logprob: float
    score: float
    finish_reason: FinishReason


class LLM:
    """`model` is a checkpoint folder, a GGUF file, the name of a packaged model, or None for the
    built-in one; `notes` says what of it runs otherwise than its files ask.

    Raises CheckpointError, UnsupportedError or CapacityError when it cannot be loaded.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        num_pages: int | None = None,
        num_threads: int | None = None,
        kv_dtype: KVDType | None = None,
        config: ScheduleConfig | None = None,
    ) -> None:
        path = resolve_model(None if model is None else str(model))
        checkpoint = Checkpoint.open(path)
        self.notes = checkpoint.notes
        loading = start_loading(
            checkpoint,
            num_pages=num_pages,
            num_threads=num_threads,
            kv_dtype=kv_dtype,
            cache=CacheConfig.from_environment(),
        )
        self.tokenizer = Tokenizer.open(path)
        self.engine = Engine(loading.finish(), self.tokenizer, config)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | None = None,
    ) -> list[Completion]:
        """One completion per prompt, in their order; a text or a list of token ids each. With
        `params.n` above 1 so many for each prompt, one after the other.

        Raises RequestError or CapacityError, before anything is computed, when a prompt can never
        be served.
        """
        params = SamplingParams() if params is None else params
        groups = [self._prepare(prompt, params) for prompt in as_prompts(prompts)]
        self._check_idle()
        pending, running = deque(groups), dict[int, Completion]()
        scheduler = self.engine.scheduler
        max_waiting = scheduler.config.max_waiting - params.n
        try:
            while pending or self.engine.has_work:
                while pending and (
                    len(scheduler.waiting) <= max_waiting or not self.engine.has_work
                ):
                    group = pending.popleft()
                    requests = self.engine.submit_many(group[0].prompt_token_ids, params)
                    running |= {one.id: group[i] for i, one in enumerate(requests)}
                for output in self.engine.step():
                    running[output.request.id]._add(output)
        finally:
            self._abandon(running)
        return [completion for group in groups for completion in group]

    def beam_search(
        self, prompt: Prompt, params: BeamSearchParams | None = None
    ) -> list[BeamCompletion]:
        """The best answers to one prompt, best first. Raises RequestError or CapacityError."""
        token_ids = encode_prompt(self.tokenizer, prompt) if isinstance(prompt, str) else prompt
        self._check_idle()
        params = BeamSearchParams() if params is None else params
        return [
            self._beam_completion(token_ids, beam)
            for beam in beam_search(self.engine, list(token_ids), params)
        ]

    def _beam_completion(self, prompt_token_ids: list[int], beam: Beam) -> BeamCompletion:
        detokenizer = Detokenizer(self.tokenizer, prompt_token_ids)
        shown = beam.token_ids[:-1] if beam.finish_reason == "stop" else beam.token_ids
        text = "".join(map(detokenizer.push, shown)) + detokenizer.flush()
        return BeamCompletion(
            text=text,
            token_ids=list(beam.token_ids),
            logprob=beam.logprob,
            score=beam.score,
            finish_reason=beam.finish_reason,
        )

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None
    ) -> Iterator[RequestOutput]:
        """The pieces of one answer as they are computed. Take one stream to its end, or close it,
        before the next answer is asked for; raises RequestError otherwise."""
        params = SamplingParams() if params is None else params
        return self._stream(self._prepare(prompt, params)[0].prompt_token_ids, params)

    def stream_chat(
        self, messages: list[dict[str, object]], params: SamplingParams | None = None
    ) -> Iterator[RequestOutput]:
        """The pieces of the next turn of a conversation. Raises RequestError when the model has no
        chat template or the template refuses the messages."""
        params = SamplingParams() if params is None else params
        token_ids = encode_chat(self.tokenizer, messages)
        self.engine.check(token_ids, params)
        return self._stream(token_ids, params)

    def _stream(self, token_ids: list[int], params: SamplingParams) -> Iterator[RequestOutput]:
        self._check_idle()
        if params.n > 1:
            raise RequestError(
                "a stream has one answer", seen=f"n {params.n}", remedy="Use generate, or n 1."
            )
        request = self.engine.submit(token_ids, params)
        try:
            while request.finish_reason is None:
                yield from self.engine.step()
        finally:
            self._abandon([request.id])

    def _prepare(self, prompt: Prompt, params: SamplingParams) -> list[Completion]:
        """The completions of one prompt, all empty yet."""
        token_ids = encode_prompt(self.tokenizer, prompt) if isinstance(prompt, str) else prompt
        self.engine.check(token_ids, params)
        return [
            Completion(prompt=prompt, prompt_token_ids=list(token_ids)) for _ in range(params.n)
        ]

    def _check_idle(self) -> None:
        if self.engine.has_work:
            raise RequestError(
                "another answer of this LLM is under way",
                seen=f"{self.engine.num_unfinished} unfinished",
                remedy="Take that stream to its end or close it, or make a second LLM.",
            )

    def _abandon(self, request_ids: Sequence[int] | dict[int, Completion]) -> None:
        """Leaves nothing behind in the engine when the caller stopped early."""
        num_cancelled = sum(self.engine.cancel(request_id) for request_id in request_ids)
        if num_cancelled:
            self.engine.step()


def as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """A single text or a single list of token ids counts as one prompt."""
    if isinstance(prompts, str):
        return [prompts]
    listed = list(prompts)
    if listed and all(isinstance(one, int) for one in listed):
        return [[one for one in listed if isinstance(one, int)]]
    return [one for one in listed if not isinstance(one, int)]

"""LLM: offline generation from Python."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Unpack

from paredown.engine.build import build
from paredown.engine.detokenize import make_detokenizer
from paredown.engine.engine import Engine
from paredown.engine.prompt import encode_chat, encode_prompt, no_prompt
from paredown.engine.request import FinishReason
from paredown.engine.request_output import RequestOutput
from paredown.engine.sampling.beam_search import Beam, BeamSearchParams, beam_search
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.engine.score import (
    Score,
    ScoredWindow,
    encode_pair,
    fit_window,
    rolling_windows,
    scoring_params,
)
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.errors import RequestError
from paredown.executors.cache_config import CacheConfig
from paredown.executors.page_memory import page_arithmetic
from paredown.executors.run_options import RunKeywords, RunOptions
from paredown.executors.sampler import Logprobs
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.generation_config import read_sampling_settings
from paredown.models.resolve import resolve_model

Prompt = str | list[int]


@dataclass(kw_only=True)
class Completion:
    """The answer to one prompt. `token_ids` are the generated tokens. `error` is set when
    `finish_reason` is "error"; the other fields then hold what was generated before."""

    prompt: Prompt
    prompt_token_ids: list[int]
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    # One entry for each prompt token but the first.
    prompt_logprobs: list[Logprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None

    def add(self, output: RequestOutput) -> None:
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
    built-in one. `notes` says what runs differently from what its files ask. `num_threads` None
    uses all cores; a `ThreadPlan` gives small steps their own threads. `speculation` proposes draft
    tokens, which changes no answer (docs/internals/speculation.md).

    The other keywords are those of RunOptions. `kv_dtype` is how keys and values are kept ("int8",
    "int4,first2=bf16", or a list with one for each layer: docs/methods/kv_cache.md). Keys and
    values get `num_pages` pages, or those that `kv_cache_bytes` hold; with neither a share of the
    free memory. `page_arithmetic` says in a line how many that are, and what they hold. `sinks`
    lets texts be of any length (docs/internals/streaming.md). `executor` and `device` say who runs
    the model, and where (docs/internals/executors.md). `cache` is by default as PAREDOWN_CACHE says
    (docs/internals/loading.md).

    Raises CheckpointError, UnsupportedError or CapacityError when it cannot be loaded, and
    ConfigError if speculation or sinks do not fit the model or the pages are given both ways.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        num_threads: int | ThreadPlan | None = None,
        config: ScheduleConfig | None = None,
        speculation: SpeculationConfig | None = None,
        **options: Unpack[RunKeywords],
    ) -> None:
        path = resolve_model(None if model is None else str(model))
        checkpoint = Checkpoint.open(path)
        self.notes = checkpoint.notes
        self._path = path
        if num_threads is not None:
            if not isinstance(num_threads, ThreadPlan):
                num_threads = ThreadPlan.resolve(num_threads)
            options["threads"] = num_threads
        if "cache" not in options:
            options["cache"] = CacheConfig.from_environment()
        built = build(checkpoint, RunOptions(**options), schedule=config, speculation=speculation)
        self.engine, self.tokenizer = built.engine, built.tokenizer
        self.page_arithmetic = page_arithmetic(built.executor.context, built.executor.kv)
        self._is_lent = False

    @cached_property
    def sampling_defaults(self) -> SamplingDefaults:
        """Returns how the checkpoint wants answers drawn (generation_config.json). They hold where
        no parameters are given. Raises CheckpointError for a damaged file."""
        return SamplingDefaults.of(read_sampling_settings(self._path))[0]

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Returns one completion per prompt, in order; a prompt is a text or a list of token ids.
        `params` applies to all prompts, or is a list with one for each. With an `n` above 1, each
        prompt gets n completions in a row.

        Raises RequestError or CapacityError, before anything is computed, when a prompt can never
        be served.
        """
        listed = as_prompts(prompts)
        params = self.sampling_defaults.params() if params is None else params
        groups = [
            (self.prepare(prompt, one), one)
            for prompt, one in zip(listed, _as_params(params, len(listed)), strict=True)
        ]
        with closing(self._complete(groups)) as done:
            deque(done, maxlen=0)
        return [completion for group, _ in groups for completion in group]

    def score(self, pairs: Sequence[tuple[Prompt, Prompt]]) -> list[Score]:
        """How likely each continuation is after its context, as lm-evaluation-harness counts it;
        docs/guide/python.md says how texts become tokens. Lists of token ids are taken as given. A
        context loses what the window has no room for; `num_dropped_tokens` counts it.

        Raises RequestError or CapacityError before anything is computed where a pair can never be
        scored, and RequestError where the model fails.
        """
        split = [encode_pair(self.tokenizer, *pair) for pair in pairs]
        size = self.engine.scheduler.max_tokens_per_request
        return self._score([fit_window(*pair, size) for pair in split])

    def score_rolling(self, texts: Prompt | Sequence[Prompt]) -> list[Score]:
        """Returns the log-likelihood of each text from its first token on, for perplexities. Texts
        are cut into windows as in lm-evaluation-harness, and each token is scored once. Raises as
        `score` does."""
        size, scores = self.engine.scheduler.max_tokens_per_request, []
        cut = [rolling_windows(self.tokenizer, text, size) for text in as_prompts(texts)]
        parts = iter(self._score([window for windows in cut for window in windows]))
        for windows in cut:
            scores.append(Score.joined([next(parts) for _ in windows]))
        return scores

    def _score(self, windows: list[ScoredWindow]) -> list[Score]:
        scores: dict[int, Score] = {}
        places: dict[int, int] = {}
        groups = []
        for i, window in enumerate(windows):
            params = scoring_params(window)
            group = self.prepare(window.token_ids[:-1], params)
            places[id(group[0])] = i
            groups.append((group, params))
        with closing(self._complete(groups)) as completions:
            for done in completions:
                i = places[id(done)]
                if done.error is not None:
                    raise RequestError(
                        "the text could not be scored",
                        seen=done.error,
                        remedy="Use another checkpoint: this one is damaged, or its numbers pass "
                        "the largest float.",
                    )
                scores[i] = windows[i].score([*done.prompt_logprobs, *done.logprobs])
                done.prompt_logprobs.clear()
        return [scores[i] for i in range(len(windows))]

    def _complete(
        self, groups: Sequence[tuple[list[Completion], SamplingParams]]
    ) -> Generator[Completion, None, None]:
        """Computes all completions and yields each when it ends."""
        self._check_idle()
        pending, running = deque(groups), dict[int, Completion]()
        engine, scheduler = self.engine, self.engine.scheduler
        max_waiting = scheduler.config.max_waiting
        try:
            while pending or engine.has_work:
                while pending and (
                    scheduler.num_waiting + pending[0][1].n <= max_waiting or not engine.has_work
                ):
                    group, params = pending.popleft()
                    requests = engine.submit_many(group[0].prompt_token_ids, params)
                    running |= {one.id: group[i] for i, one in enumerate(requests)}
                for output in engine.step():
                    completion = running[output.request.id]
                    completion.add(output)
                    if output.finish_reason is not None:
                        del running[output.request.id]
                        yield completion
        finally:
            self._abandon(running)

    def beam_search(
        self, prompt: Prompt, params: BeamSearchParams | None = None
    ) -> list[BeamCompletion]:
        """The best answers to one prompt, best first. Raises RequestError or CapacityError."""
        if params is not None and not isinstance(params, BeamSearchParams):
            raise RequestError(
                "a beam search has settings of its own",
                seen=type(params).__name__,
                remedy="Give BeamSearchParams(num_beams=4, max_tokens=64).",
            )
        token_ids = self._encode(prompt)
        self._check_idle()
        params = BeamSearchParams() if params is None else params
        return [
            self._beam_completion(token_ids, beam)
            for beam in beam_search(self.engine, list(token_ids), params)
        ]

    def _beam_completion(self, prompt_token_ids: list[int], beam: Beam) -> BeamCompletion:
        is_continued = self.engine.executor.spec.encoder is None
        detokenizer = make_detokenizer(self.tokenizer, prompt_token_ids if is_continued else [])
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
        """Yields the pieces of one answer as they are computed. Finish or close a stream before you
        start another answer; otherwise RequestError is raised."""
        params = self.sampling_defaults.params() if params is None else params
        return self._stream(self.prepare(prompt, params)[0].prompt_token_ids, params)

    def stream_chat(
        self, messages: list[dict[str, object]], params: SamplingParams | None = None
    ) -> Iterator[RequestOutput]:
        """Yields the pieces of the next turn of a conversation. Raises RequestError when the model
        has no chat template or the template refuses the messages."""
        params = self.sampling_defaults.params() if params is None else params
        token_ids = encode_chat(self.tokenizer, messages, self.max_prompt_tokens)
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

    def lend(self) -> Engine:
        """Lends the engine to a thread; until `take_back` this LLM computes nothing itself. Raises
        RequestError while an answer is unfinished."""
        self._check_idle()
        self._is_lent = True
        return self.engine

    def take_back(self) -> None:
        """Takes the engine back after the thread has ended."""
        self._is_lent = False

    def prepare(self, prompt: Prompt, params: SamplingParams) -> list[Completion]:
        """Returns the completions of one prompt, all still empty. Raises RequestError or
        CapacityError when it can never be served."""
        max_waiting = self.engine.scheduler.config.max_waiting
        if params.n > max_waiting:
            raise QueueFullError(
                "more answers to a prompt than may wait together",
                seen=f"n {params.n}, max_waiting {max_waiting}",
                remedy="Ask for fewer, or raise max_waiting.",
            )
        token_ids = self._encode(prompt)
        token_ids = self.engine.check(token_ids, params)
        return [
            Completion(prompt=prompt, prompt_token_ids=list(token_ids)) for _ in range(params.n)
        ]

    @property
    def max_prompt_tokens(self) -> int:
        return self.engine.scheduler.limits.max_prompt_tokens

    def _encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return encode_prompt(self.tokenizer, prompt, self.max_prompt_tokens)
        return prompt

    def _check_idle(self) -> None:
        if self._is_lent:
            raise RequestError(
                "an AsyncLLM has this LLM",
                seen=f"{self.engine.num_unfinished} unfinished",
                remedy="Ask the AsyncLLM, or close it first.",
            )
        if self.engine.has_work:
            raise RequestError(
                "another answer of this LLM is under way",
                seen=f"{self.engine.num_unfinished} unfinished",
                remedy="Take that stream to its end or close it, or make a second LLM.",
            )

    def _abandon(self, request_ids: Sequence[int] | dict[int, Completion]) -> None:
        """Cancels the requests of a caller that stopped early."""
        num_cancelled = sum(self.engine.cancel(request_id) for request_id in request_ids)
        if num_cancelled:
            self.engine.step()


def as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Returns the prompts as a list; a single text or list of token ids is one prompt. Raises
    RequestError for anything else."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise no_prompt(prompts)
    listed = list(prompts)
    token_ids = [one for one in listed if isinstance(one, int)]
    if listed and len(token_ids) == len(listed):
        return [token_ids]
    found: list[Prompt] = []
    for one in listed:
        if isinstance(one, int | bytes) or not isinstance(one, Iterable):
            raise no_prompt(one)
        found.append(one)
    return found


def _as_params(
    params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [SamplingParams() if params is None else params] * num_prompts
    if len(params) != num_prompts:
        raise RequestError(
            "there must be one SamplingParams for each prompt",
            seen=f"{len(params)} for {num_prompts} prompts",
            remedy="Give as many, or a single one for all.",
        )
    return list(params)

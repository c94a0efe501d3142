"""The axes of promise 1, Exact, and how to run one of their points.

QUESTION holds what is asked of which model, which decides an answer. RUNNING holds how it is run,
which must not change a bit. `Matrix.answer` returns the answers of an engine without other
requests; `Matrix.run` returns those of any point. docs/internals/exactness.md has the promise.
"""

import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fakes.knowing_proposer import KnowingProposer
from fakes.native_twin import random_decoder
from fakes.random_executor import random_executor
from fakes.torch_twin import torch_twin
from fakes.unequal_layers import unequal_spec
from paredown.compress.compress import compress
from paredown.engine.engine import Engine
from paredown.engine.prompt import encode_prompt
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.step_plan import StepPlan
from paredown.engine.speculate.draft_model import DraftModelProposer
from paredown.engine.speculate.ngram import NgramProposer
from paredown.engine.speculate.proposer import Proposer
from paredown.engine.speculate.reference_text import ReferenceTextProposer
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.engine.speculate.stats import SpeculationStats
from paredown.engine.speculate.suffix_cache import SuffixCacheProposer
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import ExecutorName, RunOptions
from paredown.executors.sampler import Logprobs
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.device import Device
from paredown.spec.kv import KVSpec
from paredown.spec.weight import WeightSpec

MAX_TOKENS = 12


def not_the_last_again(generated: list[int]) -> set[int]:
    return set(range(8192)) - set(generated[-1:])


GREEDY = SamplingParams(max_tokens=MAX_TOKENS, temperature=0, logprobs=2)
DRAWS = {
    "greedy": GREEDY,
    "sampled": SamplingParams(
        max_tokens=MAX_TOKENS, temperature=0.9, top_p=0.95, top_k=50, seed=7, logprobs=1
    ),
    # Every step of docs/internals/sampling.md at once.
    "shaped": SamplingParams(
        max_tokens=MAX_TOKENS,
        temperature=1.2,
        top_k=200,
        top_p=0.97,
        min_p=0.001,
        typical_p=0.95,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        logit_bias={11: 1.5, 12: -3.0},
        bad_words=((13,), (14, 15)),
        allowed_token_ids=tuple(range(10, 8000)),
        token_filter=not_the_last_again,
        min_tokens=4,
        seed=8,
        logprobs=1,
    ),
    "scored": SamplingParams(max_tokens=MAX_TOKENS, temperature=0, logprobs=1, prompt_logprobs=1),
}
# A model of random weights whose layers all differ.
UNEQUAL = "unequal"
# The first value of each axis belongs to the base.
QUESTION = {
    "weights": ("bf16", "int4-g32", UNEQUAL),
    "kv": ("bf16", "int8"),
    "draw": tuple(DRAWS),
}
RUNNING = {
    "batch": (1, 2, 9, 33),
    # Answers per prompt, which is computed once for them; answer i draws with seed + i.
    "answers": (1, 3),
    "step": (4096, 64, 7, 1),
    "prefix": ("cold", "warm", "off"),
    "preemption": ("none", "pages", "random"),
    "threads": (1, 2),
    "speculation": ("off", "ngram", "reference", "suffix", "draft", "knowing"),
    # A fixed number of draft tokens, or as many as pay, which depends on step times.
    "drafts": ("fixed", "adaptive"),
}
AXES: Mapping[str, Sequence[Hashable]] = QUESTION | RUNNING
BASE = {name: values[0] for name, values in AXES.items()}

# Repetitive, so that lookups find something.
TEXT = "The old house stood at the end of the lane, and he looked at the sea for a long time. " * 5
# (first token, number of tokens) of the text. Some begin alike; they end inside a page of 16, at
# its border and next to it.
PROMPTS = (
    (0, 65),
    (0, 64),
    (3, 17),
    (0, 63),
    (5, 1),
    (0, 48),
    (7, 33),
    (9, 16),
    (0, 31),
    (2, 5),
)
NUM_PAGES = 400
# Enough for the longest request with its drafts, but not for two.
FEW_PAGES = 6
MAX_PREEMPTIONS = 8

# Token ids, text, finish reason, and the ids and bits of the log-probabilities.
Answer = tuple[object, ...]
Work = list[tuple[int, str]]
Point = Mapping[str, Hashable]


@dataclass
class Outcome:
    """`answers[i]` holds the answers of pass i in order. `num_cached_tokens` counts cached tokens
    of each prompt's first answer, `num_shared_tokens` those of the others."""

    answers: list[list[Answer]] = field(default_factory=list)
    num_preemptions: int = 0
    num_steps: int = 0
    num_cached_tokens: int = 0
    num_shared_tokens: int = 0
    most_running: int = 0
    speculation: SpeculationStats | None = None


class Matrix:
    """The default model in every format of the axes, and a random one. Models are kept once
    made."""

    def __init__(
        self, folder: Path, executor_name: ExecutorName = "native", device: Device = "cpu"
    ) -> None:
        self._folder = folder
        self._executor_name = executor_name
        self._device = device
        self.tokenizer = Tokenizer.open(resolve_model(None))
        text = encode_prompt(self.tokenizer, TEXT)
        self.prompts = [text[start : start + length] for start, length in PROMPTS]
        self._executors: dict[tuple[str, int], LoadedExecutor] = {}
        self._answers: dict[tuple[Hashable, Hashable, str, int], list[Answer]] = {}

    def executor(self, point: Point, num_pages: int = NUM_PAGES) -> LoadedExecutor:
        """Returns an executor with its own pages."""
        loaded = self._loaded(str(point["weights"]), int(point["threads"]))
        return loaded.sharing_weights(KVSpec(num_pages=num_pages, dtype=point["kv"]))

    def answer(self, point: Point, prompt: int, draw: str, choice: int = 0) -> Answer:
        """Computes the answer alone, in one chunk, cold, on one thread, in a new engine."""
        key = (point["weights"], point["kv"], draw, choice)
        if key not in self._answers:
            base = {**BASE, "weights": point["weights"], "kv": point["kv"], "prefix": "off"}
            executor = self.executor(base)
            found = []
            for number in range(len(self.prompts)):
                engine = make_engine(base, executor, self.tokenizer)
                request = engine.submit(self.prompts[number], DRAWS[draw].choice(choice))
                found += run_to_end(engine, [request], Outcome())
            self._answers[key] = found
        return self._answers[key][prompt]

    def expected(self, point: Point, work: Work) -> list[Answer]:
        return [
            self.answer(point, prompt, draw, choice)
            for prompt, draw in work
            for choice in range(int(point["answers"]))
        ]

    def work(self, point: Point) -> Work:
        """Returns as many requests as the batch has; without batching, a few in sequence."""
        batch, draw = int(point["batch"]), str(point["draw"])
        numbers = (0, 9) if batch == 1 else range(batch)
        return [(number % len(self.prompts), draw) for number in numbers]

    def run(
        self, point: Point, work: Work, executor: LoadedExecutor | None = None, seed: int = 0
    ) -> Outcome:
        """Runs all of the work, `batch` requests at a time, and twice for a warm prefix."""
        if executor is None:
            is_short = point["preemption"] == "pages"
            executor = self.executor(point, FEW_PAGES if is_short else NUM_PAGES)
        speculator = self._speculator(point, work)
        engine = make_engine(point, executor, self.tokenizer, speculator)
        if point["preemption"] == "random":
            preempt_at_random(engine, random.Random(seed))
        outcome = Outcome(speculation=None if speculator is None else speculator.stats)
        for _ in range(2 if point["prefix"] == "warm" else 1):
            outcome.num_cached_tokens = 0
            outcome.answers.append(self._pass(engine, work, point, outcome))
        outcome.num_preemptions = engine.scheduler.num_preemptions
        assert speculator is None or speculator.stats.failure is None
        return outcome

    def _pass(self, engine: Engine, work: Work, point: Point, outcome: Outcome) -> list[Answer]:
        answers, batch, num_answers = [], int(point["batch"]), int(point["answers"])
        for start in range(0, len(work), batch):
            groups = [
                engine.submit_many(self.prompts[prompt], replace(DRAWS[draw], n=num_answers))
                for prompt, draw in work[start : start + batch]
            ]
            answers += run_to_end(engine, [one for group in groups for one in group], outcome)
            for first, *others in groups:
                outcome.num_cached_tokens += first.num_cached_tokens
                outcome.num_shared_tokens += sum(one.num_cached_tokens for one in others)
        return answers

    def _loaded(self, weights: str, num_threads: int) -> LoadedExecutor:
        key = (weights, num_threads)
        if key not in self._executors and weights == UNEQUAL:
            self._executors[key] = self._unequal(num_threads)
        if key not in self._executors:
            source = resolve_model("draft" if weights == "draft" else None)
            if weights not in ("bf16", "draft"):
                original, source = source, self._folder / weights
                if not source.exists():
                    compress(Checkpoint.open(original), source, weights)
            self._executors[key] = load_executor(
                Checkpoint.open(source),
                RunOptions(
                    executor=self._executor_name,
                    device=self._device,
                    num_pages=1,
                    threads=ThreadPlan.resolve(num_threads),
                ),
            )
        return self._executors[key]

    def _unequal(self, num_threads: int) -> LoadedExecutor:
        spec = unequal_spec(vocab_size=self.tokenizer.vocab_size)
        if self._executor_name == "torch":
            decoder, kv = random_decoder(spec), KVSpec(num_pages=1)
            return torch_twin(decoder, kv, num_threads, device=self._device)
        weights = WeightSpec(dtype="bf16")
        return random_executor(spec, weights, num_pages=1, num_threads=num_threads)

    def _speculator(self, point: Point, work: Work) -> Speculator | None:
        kind = str(point["speculation"])
        if kind == "off":
            return None
        config = SpeculationConfig(
            kind="draft" if kind == "draft" else "ngram",
            max_draft_tokens=6,
            is_adaptive=point["drafts"] == "adaptive",
        )
        return Speculator(self._proposer(kind, point, work), config)

    def _proposer(self, kind: str, point: Point, work: Work) -> Proposer:
        known = [
            [*self.prompts[prompt], *self.answer(point, prompt, draw)[0]] for prompt, draw in work
        ]
        match kind:
            case "ngram":
                return NgramProposer(min_match=1)
            case "reference":
                return ReferenceTextProposer(known[:2], min_match=2)
            case "suffix":
                return SuffixCacheProposer(min_match=1, max_cached_tokens=500)
            case "knowing":
                return KnowingProposer(known)
        draft = self._loaded("draft", int(point["threads"])).sharing_weights(
            KVSpec(num_pages=NUM_PAGES, dtype="bf16")
        )
        return DraftModelProposer(draft)


def make_engine(
    point: Point,
    executor: LoadedExecutor,
    tokenizer: Tokenizer,
    speculator: Speculator | None = None,
) -> Engine:
    config = ScheduleConfig(
        max_step_tokens=int(point["step"]), prefix_cache=point["prefix"] != "off"
    )
    return Engine(executor, tokenizer, config, speculator)


def run_to_end(engine: Engine, requests: list[Request], outcome: Outcome) -> list[Answer]:
    pieces = {one.id: ([], [], [], [], []) for one in requests}
    while engine.has_work:
        outputs = engine.step()
        outcome.num_steps += 1
        outcome.most_running = max(outcome.most_running, len(engine.scheduler.running))
        for output in outputs:
            assert output.error is None
            tokens, logprobs, prompt_logprobs, texts, reasons = pieces[output.request.id]
            tokens += output.token_ids
            logprobs += output.logprobs
            prompt_logprobs += output.prompt_logprobs
            texts.append(output.text)
            reasons.append(output.finish_reason)
        engine.check_integrity()
    return [
        (tokens, bits(logprobs), bits(prompt_logprobs), "".join(texts), reasons[-1])
        for tokens, logprobs, prompt_logprobs, texts, reasons in pieces.values()
    ]


def bits(logprobs: list[Logprobs]) -> tuple[list[list[int]], bytes]:
    """Returns the token ids and the raw bytes of their log-probabilities."""
    rows = [(one.chosen, *one.top) for one in logprobs]
    ids = [[one.token_id for one in row] for row in rows]
    return ids, np.array([one.logprob for row in rows for one in row], np.float64).tobytes()


def preempt_at_random(engine: Engine, rng: random.Random) -> None:
    """Preempts some running requests at random."""
    scheduler, schedule = engine.scheduler, engine.scheduler.schedule

    def schedule_and_preempt() -> StepPlan:
        plan = schedule()
        if scheduler.running and scheduler.num_preemptions < MAX_PREEMPTIONS and rng.random() < 0.3:
            scheduler._preempt(rng.choice(scheduler.running), plan)
        return plan

    scheduler.schedule = schedule_and_preempt

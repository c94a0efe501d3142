"""Promise 1, Exact, with speculation: tokens and log-probabilities have the bits of no speculation,
greedy and sampled, whoever guesses, in batches, chunks, preempted, on any number of threads."""

import random
from dataclasses import replace

import pytest

from paredown.engine.engine import Engine
from paredown.engine.native.native_executor import NativeExecutor
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.scheduler import ScheduleConfig
from paredown.engine.speculate.draft_model import DraftModelProposer
from paredown.engine.speculate.ngram import NgramProposer
from paredown.engine.speculate.reference_text import ReferenceTextProposer
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.engine.speculate.suffix_cache import SuffixCacheProposer
from paredown.spec.kv import KV_DTYPES
from random_executor import TINY, WEIGHT_SPECS, random_executor

EOS = 0
GREEDY = SamplingParams(max_tokens=40, temperature=0, logprobs=2)
# Cold, so that a random model's tokens repeat and guesses come true.
SAMPLED = SamplingParams(max_tokens=40, temperature=0.3, top_k=5, seed=10, logprobs=1)
PARAMS = {"greedy": GREEDY, "sampled": SAMPLED}
PROMPTS = [[5, 6, 7] * 9, [11], [20, 21] * 30, list(range(1, 60)), [3, 3, 3]]
SPECS = {
    "rotary": TINY,
    "window": replace(TINY, sliding_window=21),
    "qk-norm": replace(TINY, qk_norm=True),
}


class Tokenizer:
    eos_token_ids = frozenset({EOS})

    def decode(self, token_ids: list[int]) -> str:
        return "".join(chr(97 + token_id % 26) for token_id in token_ids)


class KnowingProposer:
    """The answers of no speculation, some of their tokens changed: long accepted runs, and what was
    rejected lies in the pages."""

    def __init__(self, answers: list[list[int]]) -> None:
        self._random = random.Random(1)
        self._answers = answers

    def propose(self, asks):
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask):
        known = ask.request.token_ids
        whole = next((one for one in self._answers if one[: len(known)] == known), known)
        guess = whole[len(known) : len(known) + ask.max_tokens]
        return [self._random.choice([one] * 5 + [1]) for one in guess]

    def forget(self, request):
        pass


def make_proposer(name: str, answers: list[list[int]], num_threads: int):
    if name == "ngram":
        return NgramProposer(min_match=1)
    if name == "reference":
        return ReferenceTextProposer([answers[0][10:], answers[2]], min_match=2)
    if name == "suffix":
        return SuffixCacheProposer(min_match=1, max_cached_tokens=100)
    if name == "knowing":
        return KnowingProposer(answers)
    # The target's weights in fewer bits of keys and values: mostly right.
    draft = random_executor(
        TINY, WEIGHT_SPECS["bf16"], num_pages=30, num_threads=num_threads, kv_dtype="int8"
    )
    return DraftModelProposer(draft, vocab_size=TINY.vocab_size)


PROPOSERS = ("ngram", "reference", "suffix", "draft", "knowing")


def run(executor: NativeExecutor, work, config=None, speculator=None):
    engine = Engine(executor, Tokenizer(), config, speculator)
    requests = [engine.submit(prompt, params) for prompt, params in work]
    found = {request.id: ([], [], []) for request in requests}
    while engine.has_work:
        for output in engine.step():
            tokens, logprobs, texts = found[output.request.id]
            tokens += output.token_ids
            logprobs += output.logprobs
            texts.append(output.text)
            if output.finish_reason is not None:
                texts.append(output.finish_reason)
        engine.check_integrity()
    return requests, [(one[0], one[1], "".join(one[2])) for one in found.values()]


def speculating(executor: NativeExecutor, work, proposer, config=None, **options):
    speculation = SpeculationConfig(kind="ngram", **options)
    speculator = Speculator(proposer, speculation)
    requests, answers = run(executor, work, config, speculator)
    assert speculator.stats.failure is None
    return requests, answers, speculator.stats


def alone(executor: NativeExecutor, params: SamplingParams):
    return [run(executor, [(prompt, params)])[1][0] for prompt in PROMPTS]


@pytest.fixture(scope="module")
def expected():
    executor = random_executor(TINY, WEIGHT_SPECS["bf16"])
    return {name: alone(executor, params) for name, params in PARAMS.items()}


def whole(answers) -> list[list[int]]:
    return [prompt + answer[0] for prompt, answer in zip(PROMPTS, answers, strict=True)]


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize("name", PROPOSERS)
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("max_step_tokens", [1, 7, 64, 4096])
def test_speculation_changes_no_bit(kind, name, num_threads, max_step_tokens, expected) -> None:
    executor = random_executor(TINY, WEIGHT_SPECS["bf16"], num_threads=num_threads)
    proposer = make_proposer(name, whole(expected[kind]), num_threads)
    config = ScheduleConfig(max_step_tokens=max_step_tokens)
    work = [(prompt, PARAMS[kind]) for prompt in PROMPTS]
    _, answers, stats = speculating(
        executor, work, proposer, config, max_draft_tokens=6, is_adaptive=False
    )
    assert answers == expected[kind]
    if max_step_tokens >= 64:
        assert sum(stats.num_accepted) > 0
        assert sum(stats.num_accepted) < sum(stats.num_proposed)


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize("name", PROPOSERS)
def test_preemption_beside_speculation_changes_no_bit(kind, name, expected) -> None:
    executor = random_executor(TINY, WEIGHT_SPECS["bf16"], num_pages=10, num_threads=2)
    proposer = make_proposer(name, whole(expected[kind]), 2)
    work = [(prompt, PARAMS[kind]) for prompt in PROMPTS]
    requests, answers, _ = speculating(
        executor, work, proposer, max_draft_tokens=6, is_adaptive=False
    )
    assert answers == expected[kind]
    assert sum(request.num_preemptions for request in requests) > 0


@pytest.mark.parametrize("name", PROPOSERS)
def test_adaptive_drafts_change_no_bit(name, expected) -> None:
    executor = random_executor(TINY, WEIGHT_SPECS["bf16"], num_threads=2)
    work = [(prompt, PARAMS[kind]) for kind in PARAMS for prompt in PROMPTS]
    answers = expected["greedy"] + expected["sampled"]
    proposer = make_proposer(name, whole(expected["greedy"]), 2)
    assert speculating(executor, work, proposer)[1] == answers


@pytest.mark.parametrize("format_name", WEIGHT_SPECS)
@pytest.mark.parametrize("shape_name", SPECS)
def test_no_bit_changes_in_any_format_and_architecture(shape_name, format_name) -> None:
    executor = random_executor(SPECS[shape_name], WEIGHT_SPECS[format_name], num_threads=2)
    expected = alone(executor, GREEDY)
    proposer = KnowingProposer(whole(expected))
    work = [(prompt, GREEDY) for prompt in PROMPTS]
    answers, stats = speculating(executor, work, proposer, max_draft_tokens=6, is_adaptive=False)[
        1:
    ]
    assert answers == expected
    assert 0 < sum(stats.num_accepted) < sum(stats.num_proposed)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_no_bit_changes_in_any_format_of_keys_and_values(kv_dtype) -> None:
    """Rejected guesses leave keys and values behind, scales of a page among them."""
    executor = random_executor(TINY, WEIGHT_SPECS["fp32"], kv_dtype=kv_dtype)
    expected = alone(executor, GREEDY)
    work = [(prompt, GREEDY) for prompt in PROMPTS]
    answers, stats = speculating(
        executor, work, KnowingProposer(whole(expected)), max_draft_tokens=6, is_adaptive=False
    )[1:]
    assert answers == expected
    assert 0 < sum(stats.num_accepted) < sum(stats.num_proposed)

"""Sampled speculation on the built-in pair: as far from the target's distribution as drawing from
it is, and much nearer than the draft model's."""

import numpy as np

from paredown.engine.engine import Engine
from paredown.engine.sampling.make_draw_settings import make_draw_settings
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.make_speculator import make_speculator
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

NUM_REQUESTS = 1000
TEXT = "He looked at the sea for a long time before he"


def probabilities(executor, token_ids, params):
    part = SequenceSlice(token_ids=token_ids, start=0, pages=[0, 1], num_logits=1)
    vocab_size = executor.spec.vocab_size
    state = executor.sampler.make_state(make_draw_settings(params, seed=0), token_ids, vocab_size)
    return executor.sampler.distribution(executor.step([part]), state)[0]


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum()


def test_total_variation_on_the_built_in_pair():
    path = resolve_model(None)
    executor = load_executor(
        Checkpoint.open(path), RunOptions(num_pages=512, threads=ThreadPlan.resolve(1))
    )
    tokenizer = Tokenizer.open(path)
    config = SpeculationConfig(kind="draft", max_draft_tokens=2, is_adaptive=False)
    speculator = make_speculator(
        config, executor, tokenizer, RunOptions(threads=ThreadPlan.resolve(1))
    )
    schedule = ScheduleConfig(max_waiting=NUM_REQUESTS)
    engine = Engine(executor, tokenizer, schedule, speculator)
    prompt = tokenizer.encode(TEXT)
    params = [
        SamplingParams(temperature=1.0, top_k=6, seed=seed, max_tokens=3, ignore_eos=True)
        for seed in range(NUM_REQUESTS)
    ]
    requests = [engine.submit(prompt, one) for one in params]
    while engine.has_work:
        engine.step()
    assert 0.3 < speculator.stats.acceptance_rate < 0.95
    first = [request.token_ids[len(prompt)] for request in requests]
    common = max(set(first), key=first.count)
    seconds = [one.token_ids[len(prompt) + 1] for one in requests if one.token_ids[-3] == common]
    p = probabilities(executor, [*prompt, common], params[0])
    q = probabilities(speculator.proposer.executor, [*prompt, common], params[0])
    found = np.bincount(seconds, minlength=len(p)) / len(seconds)
    # Of n draws over 6 tokens it is about sqrt(6 / (2 pi n)) on average.
    bound = 2 * np.sqrt(6 / (2 * np.pi * len(seconds)))
    assert total_variation(found, p) < bound < 0.5 * total_variation(p, q)

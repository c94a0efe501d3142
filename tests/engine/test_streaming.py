"""The default model reads and writes beyond its context without growing and without getting worse
(`python -m benchmarks.streaming` is the same on 100,000 tokens)."""

from pathlib import Path

import pytest

from benchmarks.streaming import (
    bounded_engine,
    generate,
    score_as_one_request,
    score_recomputed,
    without_end,
)
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.errors import ConfigError, RequestError
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages

SINKS = AttentionSinks(num_sink_tokens=4, window=252)
TEXT = Path(__file__).parents[2] / "LICENSE"


@pytest.fixture(scope="module")
def checkpoint():
    return Checkpoint.open(resolve_model(None))


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.open(resolve_model(None))


@pytest.fixture(scope="module")
def token_ids(tokenizer):
    return tokenizer.encode(TEXT.read_text())


@pytest.fixture(scope="module")
def sinks(checkpoint, tokenizer, token_ids):
    engine = bounded_engine(checkpoint, tokenizer, len(token_ids) + 1, 1, SINKS)
    return score_as_one_request("sinks", engine, token_ids)


def test_a_text_beyond_the_context_is_as_probable_as_its_parts(checkpoint, token_ids, sinks):
    assert len(token_ids) > 1.7 * checkpoint.spec.max_positions
    executor = load_executor(checkpoint, RunOptions(num_pages=16, threads=ThreadPlan.resolve(1)))
    reference = score_recomputed(executor, token_ids, SINKS.num_kept_tokens)
    assert len(sinks.nll_T) == len(reference.nll_T) == len(token_ids) - 1
    assert sinks.num_pages == 50
    # Recomputed tokens see 128 to 256 others, those with sinks 256.
    for found, expected in zip(sinks.perplexities(900), reference.perplexities(900), strict=True):
        assert found == pytest.approx(expected, rel=0.1)


def test_all_of_it_seen_at_once_is_worse(checkpoint, tokenizer, token_ids, sinks):
    """The measure can tell: positions that the model was not trained on cost a lot."""
    engine = bounded_engine(without_end(checkpoint, None), tokenizer, len(token_ids) + 1, 1)
    dense = score_as_one_request("dense", engine, token_ids)
    assert dense.perplexities(900)[3] > 1.2 * sinks.perplexities(900)[3]


def test_a_generation_beyond_the_context_holds_as_many_pages_as_before(
    checkpoint, tokenizer, token_ids
):
    engine = bounded_engine(checkpoint, tokenizer, len(token_ids), 1, SINKS)
    growth = generate(engine, token_ids[:2000], 200)
    assert growth.num_tokens == list(range(20, 201, 20))
    assert set(growth.pages) <= {17, 18}
    assert growth.resident_bytes[-1] - growth.resident_bytes[2] < 4e6


def test_an_llm_with_sinks_streams_and_scores_what_is_longer_than_the_context():
    llm = LLM(num_pages=60, num_threads=1, sinks=SINKS)
    plain = LLM(num_pages=256, num_threads=1)
    params = SamplingParams(temperature=0, max_tokens=20)
    assert llm.generate("It was", params)[0].text == plain.generate("It was", params)[0].text
    long = "The sea was calm and the wind was low. " * 260
    with pytest.raises(RequestError, match="context"):
        plain.generate(long, params)
    assert len(llm.generate(long, params)[0].token_ids) == 20
    (score,) = llm.score_rolling(long)
    assert len(score.token_ids) > plain.engine.executor.spec.max_positions
    assert -4 < score.logprob / len(score.token_ids) < 0


def test_an_llm_refuses_sinks_that_do_not_fit():
    with pytest.raises(ConfigError, match="2048 positions"):
        LLM(sinks=AttentionSinks(num_sink_tokens=4, window=2045))


def test_a_step_budget_counts_into_what_a_request_holds(checkpoint):
    kept = KeptPages.of(Context(spec=checkpoint.spec, sinks=SINKS))
    sizes = [kept.most_pages(n) for n in (1, 64, ScheduleConfig.max_step_tokens)]
    assert sizes == [18, 22, 50]

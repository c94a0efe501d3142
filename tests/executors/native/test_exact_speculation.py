"""Promise 1, Exact, with speculation, for every format and architecture: tokens and
log-probabilities have the bits of no speculation. Which proposer there is, and how the requests are
run, varies in tests/engine/test_exactness_matrix.py."""

import pytest

from fakes.knowing_proposer import KnowingProposer
from fakes.random_executor import TINY, WEIGHT_SPECS, random_executor
from fakes.specs import changed
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.executors.native.native_executor import NativeExecutor
from paredown.spec.kv import KV_DTYPES

EOS = 0
GREEDY = SamplingParams(max_tokens=40, temperature=0, logprobs=2)
# Cold, so that a random model's tokens repeat and draft tokens are accepted.
SAMPLED = SamplingParams(max_tokens=40, temperature=0.3, top_k=5, seed=10, logprobs=1)
PROMPTS = [[5, 6, 7] * 9, [11], [20, 21] * 30, list(range(1, 60)), [3, 3, 3]]
WORK = [(prompt, params) for params in (GREEDY, SAMPLED) for prompt in PROMPTS]
SPECS = {
    "rotary": TINY,
    "window": changed(TINY, sliding_window=21),
    "qk-norm": changed(TINY, qk_norm=True),
}


class Tokenizer:
    eos_token_ids = frozenset({EOS})

    def decode(self, token_ids: list[int]) -> str:
        return "".join(chr(97 + token_id % 26) for token_id in token_ids)


def run(
    executor: NativeExecutor,
    work: list[tuple[list[int], SamplingParams]],
    speculator: Speculator | None = None,
):
    engine = Engine(executor, Tokenizer(), speculator=speculator)
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
    return [(one[0], one[1], "".join(one[2])) for one in found.values()]


def check(executor: NativeExecutor) -> None:
    expected = [run(executor, [one])[0] for one in WORK]
    whole = [prompt + answer[0] for (prompt, _), answer in zip(WORK, expected, strict=True)]
    config = SpeculationConfig(kind="ngram", max_draft_tokens=6, is_adaptive=False)
    speculator = Speculator(KnowingProposer(whole), config)
    assert run(executor, WORK, speculator) == expected
    stats = speculator.stats
    assert stats.failure is None
    assert 0 < sum(stats.num_accepted) < sum(stats.num_proposed)


@pytest.mark.parametrize("format_name", WEIGHT_SPECS)
@pytest.mark.parametrize("shape_name", SPECS)
def test_no_bit_changes_in_any_format_and_architecture(shape_name, format_name) -> None:
    check(random_executor(SPECS[shape_name], WEIGHT_SPECS[format_name], num_threads=2))


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_no_bit_changes_in_any_format_of_keys_and_values(kv_dtype) -> None:
    """Rejected draft tokens leave keys and values behind, scales of a page among them."""
    check(random_executor(TINY, WEIGHT_SPECS["fp32"], kv_dtype=kv_dtype))

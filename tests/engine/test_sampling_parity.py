"""Each step beside the logits processor of Transformers that has its name. Logits are drawn from a
continuous distribution: where two are equal, Transformers keeps both and we the first."""

import numpy as np
import pytest
import torch
from transformers.generation import logits_process as peers

from paredown.engine.sampling.make_draw_settings import make_draw_settings
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.executors.core_sampler import CoreSampler

VOCAB_SIZE = 200
PROMPT = [3, 5, 5, 7, 199, 0]
SAMPLER = CoreSampler.with_threads(1)

CASES = {
    "temperature": ({"temperature": 0.6}, [peers.TemperatureLogitsWarper(0.6)]),
    "top_k": ({"top_k": 13}, [peers.TopKLogitsWarper(13)]),
    "top_p": ({"top_p": 0.83}, [peers.TopPLogitsWarper(0.83)]),
    "min_p": ({"min_p": 0.07}, [peers.MinPLogitsWarper(0.07)]),
    "typical_p": ({"typical_p": 0.4}, [peers.TypicalLogitsWarper(0.4)]),
    "repetition": ({"repetition_penalty": 1.7}, [peers.RepetitionPenaltyLogitsProcessor(1.7)]),
    "bias": (
        {"logit_bias": {4: 3.5, 9: -2.0}},
        [peers.SequenceBiasLogitsProcessor({(4,): 3.5, (9,): -2.0})],
    ),
    "bad_words": (
        {"bad_words": ((8,), (199, 0, 11), (5, 12), (0, 13))},
        [peers.NoBadWordsLogitsProcessor([[8], [199, 0, 11], [5, 12], [0, 13]], eos_token_id=1)],
    ),
    "min_tokens": (
        {"min_tokens": 3, "stop_token_ids": (17,)},
        [peers.MinNewTokensLengthLogitsProcessor(len(PROMPT), 3, eos_token_id=17)],
    ),
    "all": (
        {
            "logit_bias": {4: 3.5, 5: 6.0},
            "repetition_penalty": 1.2,
            "bad_words": ((8,),),
            "temperature": 1.4,
            "top_k": 90,
            "top_p": 0.91,
            "min_p": 0.013,
            "typical_p": 0.8,
        },
        [
            peers.SequenceBiasLogitsProcessor({(4,): 3.5, (5,): 6.0}),
            peers.RepetitionPenaltyLogitsProcessor(1.2),
            peers.NoBadWordsLogitsProcessor([[8]], eos_token_id=1),
            peers.TemperatureLogitsWarper(1.4),
            peers.TopKLogitsWarper(90),
            peers.TopPLogitsWarper(0.91),
            peers.MinPLogitsWarper(0.013),
            peers.TypicalLogitsWarper(0.8),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_the_distribution_is_that_of_transformers(name, seed):
    options, processors = CASES[name]
    logits = np.random.default_rng(seed).normal(0, 3, (1, VOCAB_SIZE)).astype(np.float32)
    settings = make_draw_settings(SamplingParams(**options), seed=0)
    state = SAMPLER.make_state(settings, PROMPT, VOCAB_SIZE)
    scores = peers.LogitsProcessorList(processors)(
        torch.tensor([PROMPT]), torch.tensor(logits, dtype=torch.float64)
    )
    expected = torch.softmax(scores, dim=-1).numpy()
    probs = SAMPLER.distribution(logits, state)
    assert np.array_equal(probs > 0, expected > 0)
    np.testing.assert_allclose(probs, expected, rtol=1e-9)
    assert not np.allclose(probs, torch.softmax(torch.tensor(logits), dim=-1).numpy(), rtol=1e-3)

"""Rows of logits for the sampler, and states that draw from them."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from paredown.engine.sampling.make_draw_settings import make_draw_settings
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.executors.core_sampler import CoreSampler
from paredown.executors.sampler import Logprobs

SAMPLER = CoreSampler.with_threads(1)
# Quarters, so that ties are common and every value is exact in float32.
LOGIT = st.integers(-40, 40).map(lambda n: n / 4)
LOGITS = st.lists(LOGIT, min_size=1, max_size=60)
# Shares that no sum of the weights of quarters hits, where rounding would decide.
SHARES = [0.0101, 0.37, 0.777, 0.95, 1.0]


@st.composite
def rows(draw):
    """(logits, params, prompt, generated, eos): some logits rule their tokens out, never all."""
    logits = draw(st.lists(st.one_of(LOGIT, st.just(-np.inf)), min_size=2, max_size=40))
    logits[draw(st.integers(0, len(logits) - 1))] = 0.25
    token = st.integers(0, len(logits) - 1)
    tokens = st.lists(token, max_size=12)
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.0, 1e-310, 1e-3, 0.3, 1.0, 2.5, 100.0])),
        top_k=draw(st.one_of(st.none(), st.integers(0, 45))),
        top_p=draw(st.sampled_from(SHARES)),
        min_p=draw(st.sampled_from([0.0, 0.0213, 0.51, 1.0])),
        typical_p=draw(st.sampled_from([0.217, 0.913, 1.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 0.7, 1.3])),
        presence_penalty=draw(st.sampled_from([0.0, -0.5, 1.7])),
        frequency_penalty=draw(st.sampled_from([0.0, -2.0, 0.3])),
        logit_bias=draw(st.dictionaries(token, st.sampled_from([-100.0, -0.7, 5.0]), max_size=3)),
        allowed_token_ids=draw(st.one_of(st.none(), tokens.filter(bool).map(tuple))),
        bad_words=draw(
            st.lists(st.lists(token, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)
        ),
        min_tokens=draw(st.sampled_from([0, 3])),
        stop_token_ids=draw(st.sampled_from([(), (1,)])),
    )
    return (
        logits,
        params,
        draw(tokens.filter(bool)),
        draw(tokens),
        draw(st.sampled_from([(), (0,)])),
    )


def state_of(logits, params, *, prompt=(0,), generated=(), eos=(), seed=0):
    settings = make_draw_settings(params, seed=seed, eos_token_ids=eos)
    state = SAMPLER.make_state(settings, prompt, len(logits))
    for token in generated:
        state.push(token)
    return state


class Row(NamedTuple):
    token_id: int
    logprobs: Logprobs | None
    failure: str | None


def sample_rows(sampler, rows, states):
    return [Row(*row) for row in zip(*sampler.sample(rows, states), strict=True)]

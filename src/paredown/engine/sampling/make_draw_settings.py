"""Converts a request's parameters to the settings that a sampler reads."""

from collections.abc import Iterable

from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.executors.draw_settings import DrawSettings


def make_draw_settings(
    params: SamplingParams, *, seed: int, eos_token_ids: Iterable[int] = ()
) -> DrawSettings:
    """Returns the settings of one request; `seed` may be any integer."""
    return DrawSettings(
        seed=seed % 2**64,
        temperature=params.temperature,
        top_k=params.top_k or 0,
        top_p=params.top_p,
        min_p=params.min_p,
        typical_p=params.typical_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=params.logit_bias,
        allowed_token_ids=params.allowed_token_ids,
        bad_words=params.bad_words,
        min_tokens=params.min_tokens,
        ending_token_ids=sorted(params.ending_token_ids(eos_token_ids)),
        num_logprobs=params.logprobs,
    )

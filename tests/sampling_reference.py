"""The slow, obvious sampler: NumPy float64, one token at a time, every step sorted and summed anew.
docs/sampling.md numbers the steps."""

import math
from collections.abc import Sequence

import numpy as np

from paredown.engine.sampling.sampling_params import SamplingParams

Tokens = Sequence[int]

NEVER = -math.inf


def reference_edits(
    logits: Sequence[float],
    params: SamplingParams,
    *,
    prompt: Tokens = (),
    generated: Tokens = (),
    eos: Tokens = (),
) -> list[float]:
    """Steps 1 to 4: the logits after bias, penalties and what is not allowed."""
    edited = [float(x) for x in logits]
    for token, bias in params.logit_bias.items():
        edited[token] += bias
    for token in set(prompt) | set(generated):
        penalty = params.repetition_penalty
        edited[token] = edited[token] / penalty if edited[token] > 0 else edited[token] * penalty
    for token in set(generated):
        edited[token] -= params.frequency_penalty * list(generated).count(token)
        edited[token] -= params.presence_penalty
    if params.allowed_token_ids is not None:
        allowed = set(params.allowed_token_ids)
        edited = [x if token in allowed else NEVER for token, x in enumerate(edited)]
    history = [*prompt, *generated]
    for word in params.bad_words:
        before = list(word[:-1])
        if history[len(history) - len(before) :] == before:
            edited[word[-1]] = NEVER
    if len(generated) < params.min_tokens:
        for token in {*params.stop_token_ids, *(() if params.ignore_eos else eos)}:
            edited[token] = NEVER
    return edited


def reference_probabilities(
    logits: Sequence[float], params: SamplingParams, **history: Tokens
) -> list[float]:
    """Steps 1 to 9: the probability of every token."""
    edited = reference_edits(logits, params, **history)
    order = sorted(range(len(edited)), key=lambda i: (-edited[i], i))
    best = order[0]
    assert edited[best] > NEVER, "nothing is allowed"
    if params.temperature == 0 or params.top_k == 1:
        return [1.0 if i == best else 0.0 for i in range(len(edited))]
    scaled = {i: (edited[i] - edited[best]) / params.temperature for i in order}
    weight = {i: math.exp(scaled[i]) for i in order if math.exp(scaled[i]) > 0}
    kept = [i for i in order if i in weight][: params.top_k or len(order)]
    if params.top_p < 1:
        kept = _reach(kept, weight, params.top_p)
    kept = [i for i in kept if weight[i] >= params.min_p * weight[best]]
    if params.typical_p < 1:
        total = math.fsum(weight[i] for i in kept)
        surprise = {i: math.log(total) - scaled[i] for i in kept}
        entropy = math.fsum(weight[i] / total * surprise[i] for i in kept)
        kept.sort(key=lambda i: (abs(surprise[i] - entropy), i))
        kept = _reach(kept, weight, params.typical_p)
    total, chosen = math.fsum(weight[i] for i in kept), set(kept)
    return [weight[i] / total if i in chosen else 0.0 for i in range(len(edited))]


def _reach(order: list[int], weight: dict[int, float], share: float) -> list[int]:
    """The shortest beginning of `order` that has `share` of its weight."""
    total, reached, kept = math.fsum(weight[i] for i in order), 0.0, []
    for i in order:
        if reached >= share * total:
            break
        kept.append(i)
        reached += weight[i]
    return kept


def reference_uniform(seed: int, position: int, stream: int = 0) -> float:
    bits = np.random.Philox(key=seed % 2**64, counter=position + stream * 2**64)
    return float(np.random.Generator(bits).random())


def reference_draw(probabilities: Sequence[float], seed: int, position: int) -> int:
    """The token whose stretch of the running sum holds the drawn number."""
    drawn, running = reference_uniform(seed, position), 0.0
    for token, probability in enumerate(probabilities):
        running += probability
        if drawn < running:
            return token
    return max(i for i, probability in enumerate(probabilities) if probability)


def reference_logprobs(logits: Sequence[float]) -> list[float]:
    largest = max(logits)
    normalizer = largest + math.log(math.fsum(math.exp(x - largest) for x in logits))
    return [x - normalizer for x in logits]

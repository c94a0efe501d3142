"""The slow, obvious sampler: NumPy float64, one token at a time, every step sorted and summed anew.
docs/internals/sampling.md numbers the steps."""

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


def reference_noise(vocab_size: int, seed: int, position: int) -> list[float]:
    """The exponential number of every token. That of a block's first token is the least of the 64,
    so its mean is 1/64; the others are another exponential number later."""
    firsts = _words(-(-vocab_size // 64), seed, position, stream=0)
    tokens = _words(vocab_size, seed, position, stream=1)
    noise = []
    for token in range(vocab_size):
        first = firsts[token // 64]
        later = 0.0 if token % 64 == first % 64 else _exponential(tokens[token])
        noise.append(_exponential(first) / 64 + later)
    return noise


def reference_draw(probabilities: Sequence[float], seed: int, position: int) -> int:
    """The token that comes first: the least noise over probability."""
    noise = reference_noise(len(probabilities), seed, position)
    times = [x / p if p else math.inf for x, p in zip(noise, probabilities, strict=True)]
    return times.index(min(times))


def _words(count: int, seed: int, position: int, stream: int) -> list[int]:
    """Random words of 64 bits. NumPy adds one to its counter before it draws four of them."""
    counter = ((stream << 128) + (position << 64) - 1) % 2**256
    words: list[int] = (
        np.random.Philox(key=seed % 2**64, counter=counter).random_raw(count).tolist()
    )
    return words


def _exponential(word: int) -> float:
    return -math.log1p(-(word >> 11) / 2**53)


def reference_logprobs(logits: Sequence[float]) -> list[float]:
    largest = max(logits)
    normalizer = largest + math.log(math.fsum(math.exp(x - largest) for x in logits))
    return [x - normalizer for x in logits]

"""Attention with sinks as StreamingLLM (arXiv 2309.17453, section 3.2) tells it, in float64.

The cache of a token holds the keys of the first tokens and of a window, and all of them, and the
query, are turned by their places in the cache. One token, one head, one key at a time.
"""

import numpy as np
import numpy.typing as npt

from paredown.spec.attention_sinks import AttentionSinks

Doubles = npt.NDArray[np.float64]


def turn(x_C: Doubles, place: int, frequencies: Doubles) -> Doubles:
    """Rotate-half form: dimension i of the first half turns with dimension i of the second."""
    half = len(x_C) // 2
    turned = np.empty_like(x_C)
    for i in range(half):
        cos, sin = np.cos(place * frequencies[i]), np.sin(place * frequencies[i])
        turned[i] = x_C[i] * cos - x_C[half + i] * sin
        turned[half + i] = x_C[half + i] * cos + x_C[i] * sin
    return turned


def cached_positions(position: int, sinks: AttentionSinks) -> list[int]:
    """The tokens in the cache when the one at `position` is computed, which is the last of them."""
    rolling = range(max(sinks.num_sink_tokens, position - sinks.window + 1), position + 1)
    return [*range(min(sinks.num_sink_tokens, position + 1)), *rolling]


def attend_with_sinks(
    q_HTC: Doubles, k_KTC: Doubles, v_KTC: Doubles, frequencies: Doubles, sinks: AttentionSinks
) -> Doubles:
    """[H, T, C] of queries and keys that are not turned yet."""
    num_heads, num_tokens, size = q_HTC.shape
    group = num_heads // len(k_KTC)
    out_HTC = np.empty_like(q_HTC)
    for head in range(num_heads):
        for position in range(num_tokens):
            cache = cached_positions(position, sinks)
            q_C = turn(q_HTC[head, position], len(cache) - 1, frequencies)
            scores = [
                q_C @ turn(k_KTC[head // group, other], place, frequencies) / np.sqrt(size)
                for place, other in enumerate(cache)
            ]
            weights = np.exp(np.array(scores) - max(scores))
            out_HTC[head, position] = weights @ v_KTC[head // group, cache] / weights.sum()
    return out_HTC
